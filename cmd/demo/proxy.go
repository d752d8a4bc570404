package main

import (
	"context"
	"io"
)

func runProxy(ctx context.Context, args []string, stdout, stderr io.Writer) int { return 2 }
