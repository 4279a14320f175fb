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
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// defaultListen is where the one-line gateway listens.
const defaultListen = "127.0.0.1:8080"

// tcpNetworks are those on which HTTP is served, besides unix sockets.
var tcpNetworks = []string{"tcp", "tcp4", "tcp6"}

// listenAddress completes an address by the loopback host.
func listenAddress(given string) (string, error) {
	address, err := caddy.ParseNetworkAddress(given)
	tcp := slices.Contains(tcpNetworks, address.Network)
	switch {
	case strings.Contains(given, "://"):
		return "", fmt.Errorf("--listen %q is a URL; an address is wanted, such as %s. HTTPS takes a Caddyfile", given, defaultListen)
	case err == nil && address.IsUnixNetwork() && address.Host == "":
		return "", fmt.Errorf("--listen %q lacks the socket's path, as in unix//run/llm.sock", given)
	case err == nil && !tcp && !address.IsUnixNetwork():
		return "", fmt.Errorf("--listen %q: the gateway listens on TCP or on a unix socket", given)
	case err != nil || tcp && (address.StartPort == 0 || address.PortRangeSize() != 1):
		return "", fmt.Errorf("--listen %q is not an address with one port, such as %s or :8080", given, defaultListen)
	case tcp && address.Host == "" && address.Network == "tcp6":
		address.Host = "::1"
	case tcp && address.Host == "":
		address.Host = "127.0.0.1"
	}
	return address.String(), nil
}

// isOpen reports whether others than this computer can reach an address.
func isOpen(listen string) bool {
	address, err := caddy.ParseNetworkAddress(listen)
	if err != nil || address.IsUnixNetwork() || address.Host == "localhost" {
		return false
	}
	ip := net.ParseIP(address.Host)
	return ip == nil || !ip.IsLoopback()
}

// wanted is an address that nobody may listen on, and what to do if somebody does.
type wanted struct{ address, advice string }

// checkFree wants addresses on which nobody listens, and each another one. Caddy would share them with another Caddy, or
// take a socket away from it, without a word.
func checkFree(all ...wanted) error {
	sockets := make(map[string]bool)
	for _, w := range all {
		a, err := caddy.ParseNetworkAddress(w.address)
		if err != nil {
			continue // Caddy will say what is wrong
		}
		switch path, _, _ := strings.Cut(a.Host, "|"); { // its permissions
		case a.IsUnixNetwork() && (sockets[path] || answers(a.Network, path)):
			return fmt.Errorf("somebody listens at the socket %s; %s", path, w.advice)
		case a.IsUnixNetwork():
			sockets[path] = true
		case slices.Contains(tcpNetworks, a.Network):
			l, err := net.Listen(a.Network, a.JoinHostPort(0))
			if err != nil {
				return fmt.Errorf("%w; %s", err, w.advice)
			}
			defer l.Close() // when all have been tried
		}
	}
	return nil
}

// answers reports whether somebody listens at a socket: its file stays when a process dies.
func answers(network, path string) bool {
	c, err := net.Dial(network, path)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// clientURL is what a client on this computer asks, and the socket where it finds that.
func clientURL(listen string) (base, socket string) {
	address, err := caddy.ParseNetworkAddress(listen)
	if err != nil {
		return "http://" + listen, ""
	}
	if address.IsUnixNetwork() {
		path, _, _ := strings.Cut(address.Host, "|") // its permissions
		return "http://localhost", path
	}
	if ip := net.ParseIP(address.Host); ip != nil && ip.IsUnspecified() {
		address.Host = "localhost"
	}
	return "http://" + address.JoinHostPort(0), ""
}
