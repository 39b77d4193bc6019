// Sorts tables by a click on a heading, hides columns, and saves what is shown as CSV or JSON. A cell's data-value is its figure, unrounded.
(() => {
  const MANY_COLUMNS = 6;
  const valueOf = (cell) => {
    if (cell.dataset.value === undefined) return cell.innerText.trim().replace(/\s+/g, " ");
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  const compare = (one, other) => {
    if (one === null || other === null) return (one === null) - (other === null);
    return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
  };
  const shown = (row) => [...row.cells].filter((cell) => !cell.hidden);
  const rowsOf = (table) => [...table.tBodies[0].rows].map((row) => shown(row).map(valueOf));
  const headers = (table) => shown(table.tHead.rows[0]).map((cell) => cell.dataset.name);
  const csv = (table) => [headers(table), ...rowsOf(table)]
    .map((row) => row.map((value) => {
      const text = value === null ? "" : String(value), formula = typeof value === "string" && /^[=+\-@]/.test(text) ? `'${text}` : text;
      return /[",\n]/.test(formula) ? `"${formula.replaceAll('"', '""')}"` : formula;
    }).join(",")).join("\r\n") + "\r\n";
  const json = (table) => {
    const names = headers(table);
    return JSON.stringify(rowsOf(table).map((row) => Object.fromEntries(row.map((value, i) => [names[i], value]))), null, 2) + "\n";
  };
  const save = (text, type, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // A checkbox for each column but the first, which names the row.
  const chooser = (table, cells) => {
    const list = Object.assign(document.createElement("details"), { className: "columns" });
    list.append(Object.assign(document.createElement("summary"), { textContent: "Columns" }));
    for (const cell of cells.slice(1)) {
      const label = document.createElement("label"), box = Object.assign(document.createElement("input"), { type: "checkbox", checked: true });
      box.addEventListener("change", () => {
        for (const row of table.rows) row.cells[cell.cellIndex].hidden = !box.checked;
      });
      label.append(box, cell.innerText.trim() || cell.dataset.name);
      list.append(label);
    }
    return list;
  };

  document.querySelectorAll("table.sortable").forEach((table) => {
    const cells = [...table.tHead.rows[0].cells];
    cells.forEach((cell, column) => {
      cell.querySelector("button").addEventListener("click", () => {
        const rising = cell.getAttribute("aria-sort") !== "ascending";
        cells.forEach((other) => other.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows].sort((one, other) => {
          const [a, b] = [valueOf(one.cells[column]), valueOf(other.cells[column])];
          return a === null || b === null || rising ? compare(a, b) : -compare(a, b);
        });
        table.tBodies[0].append(...rows);
      });
    });
    const saving = table.closest(".table").querySelector(".save");
    if (cells.length > MANY_COLUMNS) saving.append(chooser(table, cells));
    for (const [kind, write, type] of [["CSV", csv, "text/csv"], ["JSON", json, "application/json"]]) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: kind });
      button.setAttribute("aria-label", `Save table as ${kind}: ${table.caption.textContent}`);
      button.addEventListener("click", () => save(write(table), type, `${table.dataset.name}.${kind.toLowerCase()}`));
      saving.append(button);
    }
  });
})();
