/* What the scripts of the website share. Texts are only ever text: nothing becomes markup. */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

function made(tag, attributes = {}, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...content);
  return element;
}

/* An element below the sentence that begins the page. */
function added(element) {
  document.querySelector("p.lead").parentNode.insertBefore(
    element, document.querySelector("section"));
  return element;
}
