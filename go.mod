module github.com/watertight-go/watertight

go 1.26.0

require (
	github.com/hashicorp/go-cleanhttp v0.5.2
	github.com/sony/gobreaker/v2 v2.4.0
	golang.org/x/net v0.62.0
	golang.org/x/sync v0.25.0
)

require golang.org/x/text v0.43.0 // indirect
