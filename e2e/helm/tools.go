//go:build tools

// tools.go names the tool, so that its version is kept in go.mod.
package main

import _ "helm.sh/helm/v3/cmd/helm"
