//go:build tools

// Package nsqd names the tools, so that their version is kept in go.mod.
package nsqd

import (
	_ "github.com/nsqio/nsq/apps/nsqd"
	_ "github.com/nsqio/nsq/apps/nsqlookupd"
)
