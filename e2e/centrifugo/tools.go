//go:build tools

// Package centrifugo names the program, so that its version is kept in go.mod.
package centrifugo

import _ "github.com/centrifugal/centrifugo/v6"
