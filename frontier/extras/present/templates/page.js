"use strict";
// Sorting of the tables of points, the link between a row and its mark in the picture, what a mark is at a glance, and
// legends that hide a line. Without it nothing is lost.
for (const table of document.querySelectorAll("table.points")) {
  const body = table.tBodies[0];
  table.tHead.rows[0].querySelectorAll("th[data-sort]").forEach((head) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const at = head.cellIndex, sign = falling ? -1 : 1;
      const value = (row) => row.cells[at].dataset.v;
      const rows = [...body.rows];
      // What was not measured stays at the end, whichever way the rest is sorted.
      rows.sort((a, b) => {
        const x = value(a), y = value(b);
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return sign * (Number(x) - Number(y));
      });
      body.append(...rows);
    });
  });
}
for (const row of document.querySelectorAll("tr[data-mark]")) {
  // A mark may lie under a star of the same setting.
  const marks = ["", "-star"].flatMap((end) => [...document.querySelectorAll(`[id$="-${row.dataset.mark}${end}"]`)]);
  if (!marks.length) continue;
  const light = (on) => { for (const place of [row, ...marks]) place.classList.toggle("lit", on); };
  row.tabIndex = 0;
  for (const place of [row, ...marks]) {
    place.addEventListener("mouseenter", () => light(true));
    place.addEventListener("mouseleave", () => light(false));
  }
  row.addEventListener("focus", () => light(true));
  row.addEventListener("blur", () => light(false));
  for (const mark of marks) {
    mark.style.cursor = "pointer";
    mark.addEventListener("click", () => { row.closest("details").open = true; row.scrollIntoView({ block: "center" }); row.focus(); });
  }
}
// What a mark is: the renderer wrote it as the mark's title, which a browser shows late, and not at all on touch.
const tip = document.createElement("div");
tip.id = "tip";
tip.setAttribute("role", "tooltip");
tip.hidden = true;
document.body.append(tip);
for (const title of document.querySelectorAll(".picture svg g > title")) {
  const mark = title.parentNode, text = title.textContent;
  const show = (x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = Math.max(0, Math.min(x + 12, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = (y + 12 + tip.offsetHeight > innerHeight ? Math.max(0, y - 12 - tip.offsetHeight) : y + 12) + "px";
  };
  mark.addEventListener("mousemove", (event) => { title.remove(); show(event.clientX, event.clientY); });
  mark.addEventListener("mouseleave", () => { tip.hidden = true; mark.prepend(title); });
  mark.addEventListener("touchstart", (event) => show(event.touches[0].clientX, event.touches[0].clientY), { passive: true });
}
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
// A legend's entry hides and shows its line in the charts below it, or its deployment in the pictures.
for (const entry of document.querySelectorAll(".line")) {
  entry.tabIndex = 0;
  entry.setAttribute("role", "button");
  entry.setAttribute("aria-pressed", "true");
  const { colour, part } = entry.dataset;
  const parts = () => part ? document.querySelectorAll(`.picture svg [id*="${part}"]`) : entry.closest("figure").querySelectorAll(`svg [style*="${colour}"]`);
  const toggle = () => {
    const shown = entry.getAttribute("aria-pressed") !== "true";
    entry.setAttribute("aria-pressed", shown);
    for (const place of parts()) place.classList.toggle("hidden-line", !shown);
  };
  entry.addEventListener("click", toggle);
  entry.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } });
}
