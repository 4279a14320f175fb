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

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// caddyProcess is the Caddy that is measured.
type caddyProcess struct {
	cmd   *exec.Cmd
	admin string
	sites []string // base URLs
}

func build(dir string) (string, error) {
	bin := filepath.Join(dir, "caddy")
	cmd := exec.Command("go", "build", "-tags", "nobadger,nomysql,nopgx", "-o", bin, "github.com/llmfailover/caddy-llm-failover/cmd/caddy")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return bin, cmd.Run()
}

// startCaddy runs Caddy with a site for each handler.
func startCaddy(bin, dir string, handlers ...string) (*caddyProcess, error) {
	ports, err := freePorts(len(handlers) + 1)
	if err != nil {
		return nil, err
	}
	c := &caddyProcess{admin: "http://" + ports[0]}
	config := fmt.Sprintf("{\nadmin %s\nauto_https off\npersist_config off\nlog {\nlevel ERROR\n}\n}\n", ports[0])
	for i, h := range handlers {
		c.sites = append(c.sites, "http://"+ports[i+1])
		config += fmt.Sprintf("http://%s {\n%s\n}\n", ports[i+1], h)
	}
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	c.cmd = exec.Command(bin, "run", "--config", file)
	c.cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	var log bytes.Buffer
	c.cmd.Stdout, c.cmd.Stderr = &log, &log
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		if conn, err := net.Dial("tcp", ports[len(ports)-1]); err == nil {
			conn.Close()
			return c, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.stop()
	return nil, fmt.Errorf("caddy does not start:\n%s", log.Bytes())
}

func (c *caddyProcess) stop() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // killed: always an error
}

// freePorts returns n loopback addresses that nobody listens on.
func freePorts(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// sample is what Caddy's process has used so far.
type sample struct {
	cpu       float64 // seconds; the kernel counts exactly and tells it in steps of 10 ms
	mallocs   float64
	allocated float64 // bytes
	inUse     float64 // heap and stacks
	rss       float64
}

// collect collects Caddy's garbage, so that no round pays for another's.
func (c *caddyProcess) collect() error {
	for range 2 { // what is in a sync.Pool survives one
		if _, err := get(c.admin + "/debug/pprof/heap?gc=1"); err != nil {
			return err
		}
	}
	return nil
}

// sample reads Caddy's own metrics.
func (c *caddyProcess) sample() (sample, error) {
	text, err := get(c.admin + "/metrics")
	if err != nil {
		return sample{}, err
	}
	found := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			found[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	if found["process_cpu_seconds_total"] == 0 {
		return sample{}, errors.New("caddy does not tell its CPU time on this system")
	}
	return sample{
		cpu: found["process_cpu_seconds_total"], mallocs: found["go_memstats_mallocs_total"], allocated: found["go_memstats_alloc_bytes_total"],
		inUse: found["go_memstats_heap_inuse_bytes"] + found["go_memstats_stack_inuse_bytes"], rss: found["process_resident_memory_bytes"],
	}, nil
}

// profile writes a CPU profile of Caddy while load runs.
func (c *caddyProcess) profile(file string, load func(time.Duration)) error {
	const seconds = 10
	done := make(chan struct{})
	go func() {
		defer close(done)
		load((seconds + 1) * time.Second)
	}()
	p, err := get(fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", c.admin, seconds))
	<-done
	if err != nil {
		return err
	}
	return os.WriteFile(file, p, 0o600)
}

func get(url string) ([]byte, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return b, err
}
