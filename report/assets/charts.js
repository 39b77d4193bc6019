// Draws every figure; colours written as var(--name) come from the style sheet, again when light turns to dark.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = { responsive: true, displayModeBar: false };
  const drawn = () => document.querySelectorAll(".chart");

  const coloured = (value) => {
    if (typeof value === "string" && value.startsWith("var(--")) {
      return getComputedStyle(document.documentElement).getPropertyValue(value.slice(4, -1)).trim();
    }
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, coloured(inner)]));
    }
    return value;
  };

  const draw = (element) => {
    const figure = coloured(figures[element.dataset.figure]);
    return Plotly.react(element, figure.data, figure.layout, config);
  };

  const drawAll = () => drawn().forEach(draw);
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

  document.querySelectorAll(".switch button").forEach((button) => {
    button.addEventListener("click", () => {
      const figure = figures[button.dataset.figure];
      figure.layout.yaxis = { ...figure.layout.yaxis, ...figures[button.dataset.axis] };
      button.parentElement.querySelectorAll("button").forEach((other) => {
        other.setAttribute("aria-pressed", String(other === button));
      });
      draw(document.querySelector(`.chart[data-figure="${button.dataset.figure}"]`));
    });
  });

  // Paper is narrower than most screens: 660 px is the printable width of A4 at 96 px an inch.
  addEventListener("beforeprint", () => drawn().forEach((element) => Plotly.relayout(element, { width: 660 })));
  addEventListener("afterprint", () => drawn().forEach((element) => Plotly.relayout(element, { width: null, autosize: true })));
})();
