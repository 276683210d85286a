// What the pages do beyond links and forms: they follow a run that goes on, and arrow keys walk what is beside.
"use strict";

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, [contenteditable], [tabindex='0']");
  if (typing || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const rel = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  const link = rel && document.querySelector(`main a[rel=${rel}]`);
  if (link) link.click();
});

const EVERY_MS = 2000;
let known = null;

// Sections replace those that have changed, unless somebody is at work in them; new ones come after their neighbours.
const follow = async () => {
  if (document.hidden) return;
  const answer = await fetch(location.href, { cache: "no-cache" });
  const stamp = answer.headers.get("etag");
  if (!answer.ok || stamp === known) return;
  const first = known === null;
  known = stamp;
  if (first) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  let before = null;
  let left = false;
  for (const next of fresh.querySelectorAll("main > section[id]")) {
    const now = document.getElementById(next.id);
    if (!now) before ? before.after(next) : document.getElementById("main").append(next);
    before = now || next;
    if (!now || next.innerHTML === now.innerHTML) continue;
    if (now.contains(document.activeElement)) { left = true; continue; }
    const open = [...now.querySelectorAll("details")].map((each) => each.open);
    now.replaceChildren(...next.childNodes);
    now.querySelectorAll("details").forEach((each, at) => { each.open = open[at] || false; });
  }
  if (left) known = "";  // it is looked at again
};

if ("live" in document.body.dataset) {
  follow().catch(() => {});
  setInterval(() => follow().catch(() => {}), EVERY_MS);
}
