// The values under the pointer or at the arrow keys, one line at a time by the legend, and a closer look
// at a part of the time. The page is whole without it.
"use strict";
// The sign above a table that has columns out of sight, gone where it ends.
for (const sign of document.querySelectorAll(".more-columns")) {
  const table = sign.nextElementSibling;
  const look = () => {
    const hidden = table.scrollWidth - table.clientWidth - table.scrollLeft;
    sign.style.display = table.scrollWidth > table.clientWidth + 1 ? "block" : "none";
    sign.style.visibility = hidden > 1 ? "visible" : "hidden";
  };
  table.addEventListener("scroll", look, { passive: true });
  addEventListener("resize", look);
  look();
}
(() => {
  const figure = document.getElementById("plot");
  const readout = document.getElementById("readout");
  const data = JSON.parse(document.getElementById("data").textContent);
  const chosen = new Set();
  // The part of the time that is shown, as shares of all of it.
  let view = [0, 1];
  const CLOSEST = 0.01;

  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const variant = button.dataset.v;
      const on = !chosen.delete(variant);
      if (on) chosen.add(variant);
      button.setAttribute("aria-pressed", String(on));
      figure.classList.toggle("chosen", chosen.size > 0);
      for (const part of figure.querySelectorAll("[data-v]")) {
        part.classList.toggle("on", chosen.has(part.dataset.v));
      }
    });
  }

  // A line's value at a time, straight between two points.
  const valueAt = (points, time) => {
    let after = points.findIndex(([at]) => at >= time);
    if (after < 0) after = points.length - 1;
    const [at, mb] = points[after];
    const [before, then] = points[Math.max(after - 1, 0)];
    return at > before ? then + ((mb - then) * (Math.min(time, at) - before)) / (at - before) : mb;
  };

  // 1, 2 or 5 times a power of ten, not below `rough`.
  const niceStep = (rough) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) || 10 * power;
  };

  const plots = [...figure.querySelectorAll("svg.plot")].map((plot) => {
    const inner = plot.querySelector(".data");
    const [x, y, width, height] = inner.getAttribute("viewBox").split(" ").map(Number);
    const cross = plot.querySelector(".cross");
    let at = null;

    const draw = () => {
      const [from, to] = view;
      inner.setAttribute("viewBox", `${x + from * width} ${y} ${(to - from) * width} ${height}`);
      plot.classList.toggle("zoomed", to - from < 1);
      for (const tick of plot.querySelectorAll(".tick-x.now")) tick.remove();
      if (to - from >= 1) return;
      const scale = data.scale.seconds;
      const [start, end] = [(from * data.end_s) / scale, (to * data.end_s) / scale];
      const step = niceStep((end - start) / (width < 500 ? 4 : 8));
      for (let mark = Math.ceil(start / step) * step; mark <= end; mark += step) {
        const text = document.createElementNS(plot.namespaceURI, "text");
        text.setAttribute("class", "tick-x now");
        text.setAttribute("x", x + ((mark - start) / (end - start)) * width);
        text.setAttribute("y", y + height + 17);
        text.textContent = String(Math.round(mark * 1000) / 1000);
        plot.append(text);
      }
    };

    // The share of what is shown that lies under an event; outside of the plot below 0 or above 1.
    const shareOf = (event) => {
      const box = plot.getBoundingClientRect();
      return (((event.clientX - box.left) / box.width) * plot.viewBox.baseVal.width - x) / width;
    };

    const show = (share) => {
      if (share < 0 || share > 1) return hide();
      at = share;
      cross.setAttribute("x1", x + share * width);
      cross.setAttribute("x2", x + share * width);
      cross.removeAttribute("hidden");
      const time = (view[0] + share * (view[1] - view[0])) * data.end_s;
      const phase = data.phases.find((one) => time <= one.to_s);
      const round = phase && phase.round > 1 ? ` ${phase.round}` : "";
      const rows = data.lines
        .filter((line) => chosen.size === 0 || chosen.has(String(line.variant)))
        .map((line) => ({ name: line.name, mb: valueAt(line.points, time) }))
        .sort((one, other) => other.mb - one.mb)
        .map((row) => `${row.mb.toFixed(1).padStart(7, "\u2007")} MB  ${row.name}`);
      const when = (time / data.scale.seconds).toFixed(1);
      const unit = data.scale.seconds === 1 ? "s" : data.scale.unit;
      readout.textContent = [`at ${when} ${unit}${phase ? `, ${phase.name}${round}` : ""}`, ...rows].join("\n");
      readout.hidden = false;
      readout.style.right = share < 0.5 ? "12px" : "auto";
      readout.style.left = share < 0.5 ? "auto" : "12px";
    };
    const hide = () => {
      at = null;
      readout.hidden = true;
      cross.setAttribute("hidden", "");
    };

    // Dragging over a part shows that part.
    let began = null;
    const mark = document.createElementNS(plot.namespaceURI, "rect");
    mark.setAttribute("class", "chosen-time");
    mark.setAttribute("y", y);
    mark.setAttribute("height", height);
    const inside = (share) => Math.min(Math.max(share, 0), 1);
    plot.addEventListener("pointerdown", (event) => {
      if (event.button === 0) began = inside(shareOf(event));
    });
    plot.addEventListener("pointermove", (event) => {
      const share = shareOf(event);
      show(share);
      if (began === null) return;
      mark.setAttribute("x", x + Math.min(began, inside(share)) * width);
      mark.setAttribute("width", Math.abs(inside(share) - began) * width);
      plot.append(mark);
    });
    plot.addEventListener("pointerup", (event) => {
      mark.remove();
      const [from, to] = [began, inside(shareOf(event))].sort((one, other) => one - other);
      const dragged = began !== null && to - from > 0.02;
      began = null;
      if (dragged) look(view[0] + from * (view[1] - view[0]), view[0] + to * (view[1] - view[0]));
    });
    plot.addEventListener("pointerleave", () => {
      began = null;
      mark.remove();
      hide();
    });
    plot.addEventListener("dblclick", () => look(0, 1));

    plot.setAttribute("tabindex", "0");
    plot.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -0.01, ArrowRight: 0.01, PageUp: -0.1, PageDown: 0.1 };
      if (event.key in steps) show(inside((at ?? 0.5) + steps[event.key]));
      else if (event.key === "+") closer(0.5, at ?? 0.5);
      else if (event.key === "-") closer(2, at ?? 0.5);
      else if (event.key === "Escape") look(0, 1);
      else return;
      event.preventDefault();
    });
    plot.addEventListener("blur", hide);
    return { draw };
  });

  // Shows this part of the time.
  const look = (from, to) => {
    const middle = (from + to) / 2;
    const half = Math.max(to - from, CLOSEST) / 2;
    view = [Math.max(middle - half, 0), Math.min(middle + half, 1)];
    for (const plot of plots) plot.draw();
    for (const button of buttons) button.disabled = button.matches(".out") && view[1] - view[0] >= 1;
  };
  // Shows a part so many times as long, around a share of what is shown.
  const closer = (times, around) => {
    const middle = view[0] + around * (view[1] - view[0]);
    const half = ((view[1] - view[0]) * times) / 2;
    look(middle - half, middle + half);
  };

  const bar = document.createElement("div");
  bar.className = "zoom";
  const buttons = [
    ["Zoom in", "in", () => closer(0.5, 0.5)],
    ["Zoom out", "out", () => closer(2, 0.5)],
    ["Whole time", "out whole", () => look(0, 1)],
  ].map(([text, kind, act]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.className = kind;
    button.addEventListener("click", act);
    bar.append(button);
    return button;
  });
  figure.after(bar);
  look(0, 1);

  // On paper nothing can be opened.
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
})();
