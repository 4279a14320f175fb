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

// Command smoke starts a Caddy binary with the demo's Caddyfile and makes the call that the README shows.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(caddy, config string) error {
	cmd := exec.Command(caddy, "run", "--config", config)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Process.Kill()
	const body = `{"model":"demo","messages":[{"role":"user","content":"hi"}]}`
	var lastErr error
	for range 100 {
		resp, err := http.Post("http://localhost:8080/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil { // not up yet
			lastErr = err
			time.Sleep(100 * time.Millisecond)
			continue
		}
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(answer), `"choices"`) {
			return fmt.Errorf("status %d: %s", resp.StatusCode, answer)
		}
		fmt.Printf("answered: %s\n", answer)
		return nil
	}
	return lastErr
}
