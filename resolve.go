// Copyright 2026 The llm_failover Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package llmfailover

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// maxSecretFile is the largest file that a secret may come from, in bytes: header fields cannot carry more, and
// Caddy's placeholders cut files off without a word.
const maxSecretFile = 16 << 10

// secretFile finds the files in a secret as it is configured.
var secretFile = regexp.MustCompile(`\{file\.([^{}]+)\}`)

// inFile reports whether a key's secret is, or is in part, the content of a file.
func inFile(k *Key) bool { return secretFile.MatchString(k.Secret) }

// resolve returns a key's secret as it is now, without the white space and the byte order mark that editors leave around
// it. No error shows any part of it.
func resolve(k *Key) (string, error) {
	cannot := func(why string) error {
		return fmt.Errorf("its secret cannot be had from %s: %s", shownSecret(k.Secret), why)
	}
	for _, found := range secretFile.FindAllStringSubmatch(k.Secret, -1) {
		info, err := os.Stat(found[1])
		switch {
		case err != nil:
			return "", cannot("the file is missing or unreadable")
		case !info.Mode().IsRegular(): // to open a named pipe could take for ever
			return "", cannot("that is no regular file")
		case info.Size() > maxSecretFile:
			return "", cannot(fmt.Sprintf("the file has more than %d bytes", maxSecretFile))
		}
		file, err := os.Open(found[1]) // Caddy would log each time that it cannot, which is each second
		if err != nil {
			return "", cannot("the file is missing or unreadable")
		}
		file.Close()
	}
	value, err := caddy.NewReplacer().ReplaceOrErr(k.Secret, true, true)
	value = strings.TrimSpace(strings.TrimPrefix(value, "\uFEFF"))
	switch {
	case err == nil && strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", errors.New("its secret has a control character, which no header field can carry")
	case err == nil && value != "":
		return value, nil
	case lonePlaceholder.MatchString(k.Secret):
		return "", cannot("the variable is not set, or the file is empty")
	}
	return "", cannot("it holds a placeholder that is not known, or is empty")
}

// lonePlaceholder is a secret that only says where it is.
var lonePlaceholder = regexp.MustCompile(`^\{(env|file)\.[^{}]+\}$`)

// shownSecret is what an error may show of a secret as it is configured.
func shownSecret(configured string) string {
	if lonePlaceholder.MatchString(configured) {
		return configured
	}
	return "the config"
}
