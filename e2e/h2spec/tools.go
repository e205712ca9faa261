//go:build tools

// Package h2spec names the tool, so that its version is kept in go.mod.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
