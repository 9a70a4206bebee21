// SPDX-License-Identifier: Apache-2.0
//
// What makes a flame graph in SVG answer: zoom, search, details, keys. The frames are
// drawn without it; it reads them back from the document. Where the reader looks
// stands in the address, so it can be passed on.
(function () {
  "use strict";
  var byId = function (id) { return document.getElementById("emberl-" + id); };
  var graph = byId("graph");
  var details = byId("details");
  var matched = byId("matched");
  var shownSide = byId("frames").getAttribute("data-width");

  // A comparison has a place on each side.
  function placeOf(group, side) {
    var place = group.getAttribute("data-" + side).split(" ");
    return { x: parseFloat(place[0]) / 100, width: parseFloat(place[1]) / 100 };
  }

  var frames = Array.prototype.map.call(byId("frames").querySelectorAll("g"), function (group, index) {
    var rect = group.querySelector("rect");
    var title = group.querySelector("title").textContent;
    return {
      index: index,
      group: group,
      rect: rect,
      text: group.querySelector("text"),
      x: parseFloat(rect.getAttribute("x")) / 100,
      width: parseFloat(rect.getAttribute("width")) / 100,
      y: parseFloat(rect.getAttribute("y")),
      name: title.split("\n")[0],
      details: title.split("\n").join("  \u00b7  "),
      sides: group.hasAttribute("data-after") && { after: placeOf(group, "after"), before: placeOf(group, "before") },
    };
  });
  if (frames.length === 0) return;
  byId("width").style.display = frames[0].sides ? "" : "none";
  var compares = Boolean(frames[0].sides);
  var tolerance = 1e-6;
  var zoomed = frames[0];
  var current = frames[0];
  var pattern = "";
  var ignoreCase = false;

  function contains(outer, inner) {
    return outer.x <= inner.x + tolerance && outer.x + outer.width >= inner.x + inner.width - tolerance;
  }

  // ---- drawing ----

  var characterWidth = (function () {
    var probe = document.createElementNS("http://www.w3.org/2000/svg", "text");
    probe.textContent = "MMMMMMMMMM";
    graph.appendChild(probe);
    var width = probe.getComputedTextLength() / 10;
    graph.removeChild(probe);
    return width || 7.3;
  })();

  function label(name, pixels) {
    var room = Math.floor((pixels - 6) / characterWidth);
    if (room < 3) return "";
    var characters = Array.from(name);
    return characters.length <= room ? name : characters.slice(0, room - 1).join("") + "\u2026";
  }

  function place(frame, x, width, pixels) {
    var text = label(frame.name, width * pixels);
    frame.group.style.display = "";
    frame.rect.setAttribute("x", 100 * x + "%");
    frame.rect.setAttribute("width", 100 * width + "%");
    if (!frame.text && text) {
      frame.text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      frame.text.setAttribute("dx", "3");
      frame.text.setAttribute("y", frame.y + 13);
      frame.group.appendChild(frame.text);
    }
    if (frame.text) {
      frame.text.setAttribute("x", 100 * x + "%");
      frame.text.textContent = text;
    }
  }

  function draw() {
    var pixels = graph.getBoundingClientRect().width;
    frames.forEach(function (frame) {
      var above = frame.y < zoomed.y && contains(frame, zoomed);
      frame.group.classList.toggle("above", above);
      frame.group.classList.toggle("current", frame === current);
      if (above) {
        place(frame, 0, 1, pixels);
      } else if (frame.y >= zoomed.y && contains(zoomed, frame)) {
        var width = frame.width / zoomed.width;
        if (width * pixels < 0.2) frame.group.style.display = "none";
        else place(frame, (frame.x - zoomed.x) / zoomed.width, width, pixels);
      } else {
        frame.group.style.display = "none";
      }
    });
    byId("reset").style.display = zoomed === frames[0] ? "none" : "";
  }

  // Frames that have no width on the new side are left for the nearest caller.
  function useSide(side) {
    shownSide = side;
    frames.forEach(function (frame) {
      frame.x = frame.sides[side].x;
      frame.width = frame.sides[side].width;
    });
    byId("width").textContent = "Widths: " + side;
    if (zoomed.width === 0) zoomed = frames[0];
    if (current.width === 0) current = zoomed;
  }

  function switchSide() {
    if (!compares) return;
    useSide(shownSide === "after" ? "before" : "after");
    search(pattern);
    draw();
    remember();
  }

  function show(frame) {
    details.textContent = frame ? frame.details : details.getAttribute("data-hint");
  }

  // ---- search ----

  function expression(text) {
    var flags = ignoreCase ? "i" : "";
    try {
      return new RegExp(text, flags);
    } catch (_) {
      return new RegExp(text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"), flags);
    }
  }

  // Frames inside one another count once.
  function covered(hits) {
    var sum = 0;
    var end = -1;
    hits.slice().sort(function (a, b) { return a.x - b.x || a.y - b.y; }).forEach(function (frame) {
      var from = Math.max(frame.x, end);
      sum += Math.max(0, frame.x + frame.width - from);
      end = Math.max(end, frame.x + frame.width);
    });
    return sum;
  }

  function search(text) {
    pattern = text;
    var wanted = text && expression(text);
    var hits = frames.filter(function (frame) {
      var hit = Boolean(wanted) && wanted.test(frame.name);
      frame.group.classList.toggle("hit", hit);
      return hit;
    });
    matched.textContent = text ? "Matched: " + (100 * covered(hits)).toFixed(1) + " %" : "";
    byId("search").textContent = text ? "Clear search" : "Search";
    remember();
  }

  function ask() {
    var text = window.prompt("Search for frames by regular expression", pattern);
    if (text !== null) search(text);
  }

  // ---- state ----

  function remember() {
    var parts = [];
    if (zoomed !== frames[0]) parts.push("z=" + zoomed.index);
    if (pattern) parts.push("s=" + encodeURIComponent(pattern));
    if (ignoreCase) parts.push("ic=1");
    if (shownSide !== byId("frames").getAttribute("data-width")) parts.push("w=" + shownSide);
    try {
      window.history.replaceState(null, "", "#" + parts.join("&"));
    } catch (_) {
      // Inside another document: the state is not kept.
    }
  }

  function recall() {
    var state = {};
    window.location.hash.slice(1).split("&").forEach(function (part) {
      var at = part.indexOf("=");
      try {
        if (at > 0) state[part.slice(0, at)] = decodeURIComponent(part.slice(at + 1));
      } catch (_) {
        // Not ours.
      }
    });
    zoomed = current = frames[Number(state.z)] || frames[0];
    if (compares) useSide(state.w === "after" || state.w === "before" ? state.w : byId("frames").getAttribute("data-width"));
    setIgnoreCase(state.ic === "1");
    search(state.s || "");
  }

  function zoom(frame) {
    zoomed = current = frame;
    draw();
    show(frame);
    remember();
  }

  function setIgnoreCase(on) {
    ignoreCase = on;
    byId("case").textContent = on ? "Any case: on" : "Any case: off";
  }

  // ---- keys ----

  function callerOf(frame) {
    return frames.filter(function (one) { return one.y < frame.y && contains(one, frame); }).pop();
  }

  function calleesOf(frame) {
    var below = Math.min.apply(null, frames.filter(function (one) { return one.y > frame.y; })
      .map(function (one) { return one.y; }));
    return frames.filter(function (one) { return one.y === below && contains(frame, one); })
      .sort(function (a, b) { return a.x - b.x; });
  }

  function beside(frame, step) {
    var row = frames.filter(function (one) { return one.y === frame.y && one.group.style.display !== "none"; })
      .sort(function (a, b) { return a.x - b.x; });
    return row[row.indexOf(frame) + step];
  }

  function move(frame) {
    if (!frame) return;
    current = frame;
    draw();
    show(frame);
  }

  var keys = {
    Escape: function () { search(""); zoom(frames[0]); show(null); },
    Enter: function () { zoom(current); },
    ArrowUp: function () { move(callerOf(current)); },
    ArrowDown: function () { move(calleesOf(current)[0]); },
    ArrowLeft: function () { move(beside(current, -1)); },
    ArrowRight: function () { move(beside(current, 1)); },
    F3: ask,
    "/": ask,
    "Ctrl-f": ask,
    b: switchSide,
    i: function () { setIgnoreCase(!ignoreCase); search(pattern); },
  };

  // ---- start ----

  function frameOf(event) {
    var group = event.target.closest ? event.target.closest("g") : null;
    return frames.find(function (frame) { return frame.group === group; });
  }

  byId("frames").addEventListener("click", function (event) {
    var frame = frameOf(event);
    if (frame) zoom(frame);
  });
  byId("frames").addEventListener("mouseover", function (event) { show(frameOf(event)); });
  byId("frames").addEventListener("mouseout", function () { show(null); });
  byId("reset").addEventListener("click", function () { zoom(frames[0]); show(null); });
  byId("search").addEventListener("click", function () { if (pattern) search(""); else ask(); });
  byId("width").addEventListener("click", switchSide);
  byId("case").addEventListener("click", keys.i);
  window.addEventListener("keydown", function (event) {
    var button = event.target.closest && event.target.closest(".button");
    if (button && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      button.dispatchEvent(new MouseEvent("click"));
      return;
    }
    var key = keys[(event.ctrlKey || event.metaKey ? "Ctrl-" : "") + event.key];
    if (!key || event.altKey) return;
    event.preventDefault();
    key();
  });
  window.addEventListener("resize", draw);
  window.addEventListener("hashchange", function () { recall(); draw(); });
  recall();
  draw();
  show(null);
})();
