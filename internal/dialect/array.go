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

package dialect

import "bytes"

// NextElement returns the length of the first whole object of an array that is coming in, with the bracket, comma and
// white space before it; or of the array's closing bracket, with the white space after it. It is 0 if b begins with
// neither. Where b begins in the array does not matter, as long as it is not within an element.
func NextElement(b []byte) int {
	r := reader{b: b}
	for {
		switch r.peek() {
		case '[', ',':
			r.i++
		case '{':
			if r.skip() == nil {
				return 0
			}
			return r.i
		case ']':
			r.i++
			r.peek()
			return r.i
		default:
			return 0
		}
	}
}

// Element returns the object in what NextElement has cut off; it is empty for the closing bracket.
func Element(raw []byte) []byte {
	return bytes.Trim(raw, "[], \t\r\n")
}
