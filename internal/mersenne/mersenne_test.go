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

package mersenne

import (
	"math"
	"slices"
	"testing"
)

func outputs(s *Source, n int) (got []uint32) {
	for range n {
		got = append(got, s.Uint32())
	}
	return got
}

// TestPublished: the first numbers of mt19937ar.out, the authors' own.
func TestPublished(t *testing.T) {
	got := outputs(byArray([]uint32{0x123, 0x234, 0x345, 0x456}), 5)
	if want := []uint32{1067595299, 955945823, 477289528, 4107218783, 4228976476}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestLikePython: what CPython's random.Random gives for the same seeds.
func TestLikePython(t *testing.T) {
	for seed, want := range map[uint64][]uint32{
		0:         {3626764237, 1654615998, 3255389356, 3823568514, 1806341205, 173879092},
		107:       {1058631966, 2662058913, 2496621242, 3291356320, 4175915123, 3122927254},
		1<<40 + 5: {2166296868, 2220160828, 1153647273, 2850991874, 3976222944, 117802120},
	} {
		if got := outputs(New(seed), len(want)); !slices.Equal(got, want) {
			t.Errorf("seed %d: %v, want %v", seed, got, want)
		}
	}
	if got := outputs(New(107), 100_000)[99_999]; got != 603605765 {
		t.Errorf("the 100,000th number is %d", got)
	}
	s := New(107)
	for i, want := range []float64{0.24648195966935815, 0.5812899303907797, 0.9722810069256511, 0.6577925639247865, 0.4825202358007319, 0.30898383972761845} {
		if got := s.Float64(); got != want {
			t.Errorf("random() %d: %v, want %v", i, got, want)
		}
	}
	s = New(107)
	for i, want := range []int{63, 158, 148, 196, 248, 186, 168, 108, 123, 195, 79, 244} {
		if got := s.Range(0, 251); got != want {
			t.Errorf("randrange %d: %v, want %v", i, got, want)
		}
	}
}

// TestRangesLikePython: randrange(0, n) of several n and then random(), of seeds with one digit and with two.
func TestRangesLikePython(t *testing.T) {
	spans := []int{1, 2, 251, 1000, 1 << 20, math.MaxInt32}
	for _, tc := range []struct {
		seed uint64
		want []int
		next float64
	}{
		{0, []int{0, 1, 10, 265, 1019064, 869589436}, 0.9182343317851318},
		{1, []int{0, 0, 65, 120, 1039002, 1634154402}, 0.4494910647887381},
		{107, []int{0, 1, 123, 781, 647986, 2055049699}, 0.13781659621412856},
		{1<<32 - 1, []int{0, 0, 155, 534, 610974, 1295041661}, 0.3400278163075766},
		{1 << 32, []int{0, 1, 106, 957, 34972, 49009542}, 0.6117214625782752},
		{1<<64 - 1, []int{0, 0, 86, 633, 444528, 979389737}, 0.6151259995625727},
	} {
		s := New(tc.seed)
		for i, span := range spans {
			if got := s.Range(0, span); got != tc.want[i] {
				t.Errorf("seed %d: randrange(0, %d): %d, want %d", tc.seed, span, got, tc.want[i])
			}
		}
		if got := s.Float64(); got != tc.next {
			t.Errorf("seed %d: random(): %v, want %v", tc.seed, got, tc.next)
		}
	}
}

func TestRange(t *testing.T) {
	s := New(1)
	for _, tc := range [][2]int{{0, 1}, {5, 6}, {-3, 4}, {0, math.MaxInt32}} {
		for range 100 {
			if got := s.Range(tc[0], tc[1]); got < tc[0] || got >= tc[1] {
				t.Fatalf("%d is not in %v", got, tc)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an empty range gave a number")
		}
	}()
	s.Range(3, 3)
}
