// What tests ask of a page in a browser.
window.outside = () => [...document.querySelectorAll("body *")]
  .filter((each) => !each.closest(".scroll, .said, .unseen, .chart svg svg") && each.getClientRects().length)
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 || each.getBoundingClientRect().left < -1)
  .map((each) => each.outerHTML.slice(0, 120));

// Pairs of texts of a chart that lie over each other; a line of text is a little higher than its letters.
window.overlaps = () => [...document.querySelectorAll(".chart > svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll(".tick, .title, .unit, .name")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  const meet = (a, b) => a.width && b.width && a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 2 && b.top < a.bottom - 2;
  return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([, b]) => meet(a, b)).map(([other]) => [one, other]));
});

// Names of lines that a point covers.
window.covered = () => [...document.querySelectorAll(".chart > svg")].flatMap((svg) => {
  const marks = [...svg.querySelectorAll(".mark")].map((mark) => mark.getBoundingClientRect());
  return [...svg.querySelectorAll(".halo")].filter((text) => {
    const box = text.getBoundingClientRect();
    return marks.some((mark) => mark.left < box.right && box.left < mark.right && mark.top < box.bottom - 3 && box.top + 3 < mark.bottom);
  }).map((text) => text.textContent);
});

window.serious = async () => (await axe.run()).violations
  .filter((rule) => ["serious", "critical"].includes(rule.impact))
  .map((rule) => [rule.id, rule.nodes.map((node) => node.html)]);

// Least contrast with the paper (WCAG 2, relative luminance) of the texts of charts, and of the colours of scalers.
window.contrasts = () => {
  const light = (colour) => colour.match(/[\d.]+/g).slice(0, 3)
    .map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const ratio = (colour) => (Math.max(paper, light(colour)) + 0.05) / (Math.min(paper, light(colour)) + 0.05);
  const texts = [...document.querySelectorAll(".chart text, .chart tspan")].map((each) => ratio(getComputedStyle(each).fill));
  const series = [1, 2, 3, 4, 5, 6, 7, 8].map((number) => {
    const box = document.body.appendChild(document.createElement("i"));
    box.style.color = `var(--series-${number})`;
    return ratio(getComputedStyle(box).color);
  });
  return { text: Math.min(...texts), series: Math.min(...series) };
};

// Texts that the buttons in this element save.
window.saved = (element) => {
  const texts = [];
  URL.createObjectURL = (blob) => { texts.push(blob.text()); return "data:,"; };
  HTMLAnchorElement.prototype.click = () => {};
  element.querySelectorAll("button").forEach((button) => button.click());
  return Promise.all(texts);
};

window.drag = (chart, from, to) => {
  const box = chart.getBoundingClientRect();
  Element.prototype.setPointerCapture = () => {};
  for (const [kind, x] of [["pointerdown", from], ["pointermove", to], ["pointerup", to]]) {
    const where = { clientX: box.left + x, clientY: box.top + 100, pointerType: "mouse", pointerId: 1, button: 0 };
    chart.dispatchEvent(new PointerEvent(kind, where));
  }
};
