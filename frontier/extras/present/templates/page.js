"use strict";
// Sorting of the tables of points, and the link between a row and its mark in the picture. Without it nothing is lost.
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
  const ids = ["a-", "n-"].flatMap((of) => ["", "-star"].map((end) => of + row.dataset.mark + end));
  const marks = ids.map((id) => document.getElementById(id)).filter(Boolean);
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
