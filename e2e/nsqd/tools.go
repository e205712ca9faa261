//go:build tools

// Package nsqd names the tool, so that its version is kept in go.mod.
package nsqd

import _ "github.com/nsqio/nsq/apps/nsqd"
