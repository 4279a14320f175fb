/*
Copyright 2026 The llm_failover Authors

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/
"use strict";
(() => {
	const live = document.getElementById("live");
	let heard = Date.now();

	// morph makes one node like another and leaves alone what is equal, so that nobody loses a selection or a focus.
	function morph(old, fresh) {
		if (old.nodeName !== fresh.nodeName) {
			old.replaceWith(fresh);
			return;
		}
		if (old.nodeType === Node.TEXT_NODE) {
			if (old.data !== fresh.data) old.data = fresh.data;
			return;
		}
		if (old.nodeType !== Node.ELEMENT_NODE) return;
		for (const name of old.getAttributeNames()) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
		for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
		const before = [...old.childNodes], after = [...fresh.childNodes];
		before.slice(after.length).forEach((node) => node.remove());
		after.forEach((node, i) => (i < before.length ? morph(before[i], node) : old.append(node)));
	}

	// An old page must not look like a good one.
	function say(text, stale) {
		if (live.textContent !== text) live.textContent = text;
		document.body.classList.toggle("stale", stale);
	}

	function watch() {
		const url = new URL(location); // with its own query, which a matcher may look at
		url.searchParams.set("events", "page");
		const source = new EventSource(url);
		source.onmessage = (event) => {
			const fresh = new DOMParser().parseFromString(JSON.parse(event.data).html, "text/html");
			morph(document.getElementById("status"), fresh.getElementById("status"));
			document.title = document.getElementById("status").dataset.title;
			heard = Date.now();
			say("Live.", false);
		};
		source.onerror = () => {
			if (source.readyState === EventSource.CLOSED) setTimeout(watch, 5000); // refused; else the browser tries again itself
		};
	}

	setInterval(() => {
		if (Date.now() - heard > 5000) say("Not live: no news since " + document.querySelector("#status time").textContent + " UTC. Trying again.", true);
	}, 1000);
	say("Connecting.", false);
	watch();
})();
