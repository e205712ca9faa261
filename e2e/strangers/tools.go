//go:build tools

// Package strangers names the programs, so that their versions are kept in go.mod.
package strangers

import (
	_ "github.com/fullstorydev/grpcurl/cmd/grpcurl"
	_ "google.golang.org/grpc/interop/client"
)
