"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const label = () => { button.textContent = isDark() ? "light" : "dark"; };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  prefersDark.addEventListener("change", label);
  label();

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.key === undefined ? cell.textContent.trim() : cell.dataset.key;
  };
  const compare = (a, b) => {
    if (a === "" || b === "") return 0;
    const x = a === "inf" ? Infinity : Number(a), y = b === "inf" ? Infinity : Number(b);
    if (Number.isNaN(x) || Number.isNaN(y)) return a.localeCompare(b, "en", { numeric: true });
    return x === y ? 0 : x < y ? -1 : 1;
  };
  for (const table of document.querySelectorAll("table")) {
    const headers = [...table.tHead.rows[0].cells];
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, column) => { cell.dataset.label = headers[column].textContent; });
    }
    headers.forEach((header, column) => header.addEventListener("click", () => {
      const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((left, right) => {
        const a = keyOf(left, column), b = keyOf(right, column);
        return (a === "") - (b === "") || sign * compare(a, b); // unknown last, either way
      });
      table.tBodies[0].append(...rows);
    }));
  }
})();
