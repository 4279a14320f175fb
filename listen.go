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

// checkFree wants an address on which nobody listens. Caddy would share it with another Caddy without a word.
func checkFree(address, advice string) error {
	a, err := caddy.ParseNetworkAddress(address)
	if err != nil || !slices.Contains(tcpNetworks, a.Network) {
		return nil // Caddy will say what is wrong
	}
	l, err := net.Listen(a.Network, a.JoinHostPort(0))
	if err != nil {
		return fmt.Errorf("%w; %s", err, advice)
	}
	return l.Close()
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
