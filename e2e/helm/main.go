// Reads manifests on standard input and decodes each as strictly as the API server can. A field
// that its kind does not have, or that is given twice, is a mistake. Kinds of others are only named.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	codecs := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
	reader := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	failed := false
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = check(codecs, text)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(codecs serializer.CodecFactory, text []byte) error {
	var kind runtime.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return err
	}
	// Comments alone.
	if kind.Kind == "" {
		return nil
	}
	_, _, err := codecs.UniversalDeserializer().Decode(text, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		fmt.Printf("%s of %s: not checked\n", kind.Kind, kind.APIVersion)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	return nil
}
