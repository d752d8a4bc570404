package main

import (
	"encoding/json"
	"os"
	"strings"
)

// expression is a query of a dashboard.
type expression struct{ panel, query string }

// expressions reads the queries of a dashboard, with its variables filled in.
func expressions(file string) ([]expression, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	type target struct {
		Expr string `json:"expr"`
	}
	var dashboard struct {
		Panels []struct {
			Title   string   `json:"title"`
			Targets []target `json:"targets"`
		} `json:"panels"`
		Annotations struct {
			List []struct {
				Name string `json:"name"`
				target
			} `json:"list"`
		} `json:"annotations"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return nil, err
	}
	fill := strings.NewReplacer("$job", ".*", "$client", ".*", "$policy", ".*", "$__rate_interval", "10s")
	var all []expression
	for _, p := range dashboard.Panels {
		for _, t := range p.Targets {
			all = append(all, expression{p.Title, fill.Replace(t.Expr)})
		}
	}
	for _, a := range dashboard.Annotations.List {
		if a.Expr != "" {
			all = append(all, expression{a.Name, fill.Replace(a.Expr)})
		}
	}
	return all, nil
}
