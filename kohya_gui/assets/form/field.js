// One field: label, control, help, what is wrong with it. It knows its look; what it means is in Values.
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in node && typeof value !== "string") node[name] = value;
    else if (value !== false) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

class Field {
  constructor(name, tab, values, browseFrom, onChange) {
    this.name = name;
    this.browseFrom = browseFrom;
    this.spec = values.specs[name];
    this.values = values;
    this.id = `${tab}--${name}`;
    this.problems = [];
    this.haystack = [name, name.replaceAll("_", " "), this.spec.label, this.spec.help].join("\n").toLowerCase();
    this.control = this.makeControl();
    this.control.addEventListener(this.spec.kind === "choice" ? "change" : "input", () => {
      values.set(name, this.spec.kind === "switch" ? this.control.checked : this.control.value);
      onChange();
    });
    this.reset = make("button", { type: "button", class: "reset", hidden: true }, "Reset");
    this.reset.onclick = () => {
      delete values.state[name];
      this.show();
      this.control.focus();
      onChange();
    };
    this.element = this.build();
    this.show();
  }

  makeControl() {
    const { kind, path, secret, suggestions } = this.spec;
    const about = { id: this.id, "data-option": this.name, "aria-describedby": `${this.id}--help ${this.id}--note` };
    if (kind === "switch") return make("input", { ...about, type: "checkbox" });
    if (kind === "choice") return make("select", about);
    if (kind === "lines") return make("textarea", { ...about, rows: "2", spellcheck: "false" });
    const typing = { type: secret ? "password" : "text", autocomplete: secret ? "new-password" : "off", spellcheck: "false" };
    if (kind === "number" && !suggestions) typing.inputmode = "decimal";
    if (suggestions) typing.list = `${this.id}--list`;
    return make("input", { ...about, ...typing });
  }

  build() {
    const { kind, help, unit, path, suggestions = [] } = this.spec;
    this.title = make("span", { class: "title" });
    this.code = make("code", {});
    this.help = make("p", { class: "help", id: `${this.id}--help` });
    this.note = make("p", { class: "reason", hidden: true });
    this.trouble = make("div", { class: "trouble", id: `${this.id}--note` });
    const label = make("label", { for: this.id }, this.title);
    if (unit) label.append(make("small", {}, unit));
    const head = make("div", { class: "head" }, label, this.reset, this.code);
    const rest = [this.help, this.note, this.trouble];
    this.paint([]);
    const wide = path || kind === "list" || kind === "lines" ? " wide" : "";
    if (kind === "switch") {
      head.prepend(this.control);
      return make("div", { class: `field switch${wide}` }, head, ...rest);
    }
    const line = make("div", { class: "control" }, this.control);
    if (suggestions.length) {
      line.append(make("datalist", { id: `${this.id}--list` }, ...suggestions.map((value) => make("option", { value }))));
    }
    if (path) line.append(this.browseButton(path));
    return make("div", { class: `field${wide}` }, head, line, ...rest);
  }

  browseButton(path) {
    const button = make("button", { type: "button", class: "browse-for", "aria-label": `Browse for ${this.spec.label}` });
    button.append("Browse…");
    button.onclick = () => window.kohyaBrowse(this.id, path, this.browseFrom);
    return button;
  }

  // Bring the control to what the values say.
  show() {
    const { kind } = this.spec;
    const shown = this.values.state[this.name];
    if (kind === "switch") {
      this.control.checked = this.values.shown(this.name);
      return;
    }
    if (kind === "choice") this.offer(shown);
    else this.control.placeholder = this.values.defaultOf(this.name);
    if (this.control.value !== (shown ?? "")) this.control.value = shown ?? "";
  }

  // The default stands first; a value that is none of the choices stays visible.
  offer(shown) {
    const usual = this.values.defaultOf(this.name);
    const named = (value) => (this.name === FAMILY_FIELD ? SCHEMA.families[value]?.label ?? value : value);
    const others = this.spec.choices.filter((value) => value !== usual || value === shown);
    if (shown !== undefined && !this.spec.choices.includes(shown)) others.push(shown);
    const first = this.name === FAMILY_FIELD ? "not known" : usual === "" ? "unset" : `${usual} (default)`;
    this.control.replaceChildren(
      make("option", { value: "" }, first),
      ...others.map((value) => make("option", { value }, named(value))),
    );
  }

  matches(words) {
    return words.every((word) => this.haystack.includes(word));
  }

  // Texts with the searched words marked.
  paint(words) {
    highlight(this.title, this.spec.label, words);
    highlight(this.code, this.name === FAMILY_FIELD ? "" : this.name, words);
    highlight(this.help, this.spec.help, words);
  }

  refresh({ words, onlyChanged, isAsked }) {
    const changed = this.values.isChanged(this.name) && (this.name !== FAMILY_FIELD || isAsked);
    const idle = this.values.whyIdle(this.name);
    const searched = words.length > 0;
    const wanted = changed || this.problems.length > 0;
    let visible = (!idle || wanted || searched) && (!onlyChanged || wanted) && this.matches(words);
    if (this.name === FAMILY_FIELD) visible = visible && isAsked;
    const unknown = !this.values.family && this.spec.onlyFor && !this.spec.missing; // nobody knows yet whether it acts
    const note = idle && !(unknown && wanted && !searched) ? idle : "";
    this.element.hidden = !visible;
    this.element.classList.toggle("changed", changed);
    this.element.classList.toggle("idle", note !== "");
    this.reset.hidden = !changed;
    const usual = String(this.values.defaultOf(this.name) || "unset");
    this.reset.title = this.spec.kind === "switch" ? "Back to the default" : `Back to the default: ${usual}`;
    this.note.hidden = note === "" || this.problems.length > 0; // which say as much
    this.note.textContent = note;
    return { visible, changed };
  }

  report(problems) {
    this.problems = problems;
    const worst = problems[0]?.level;
    this.element.dataset.level = worst ?? "";
    this.control.setAttribute("aria-invalid", worst === "error");
    this.trouble.replaceChildren(...problems.map(({ level, text }) => make("p", { class: level }, text)));
  }
}

function highlight(node, text, words) {
  if (!words.length) {
    if (node.textContent !== text || node.children.length) node.textContent = text;
    return;
  }
  const pattern = new RegExp(`(${words.map((word) => word.replace(/[^a-z0-9]/gi, (c) => (c === " " ? "[ _]" : `\\${c}`))).join("|")})`, "gi");
  const parts = text.split(pattern).map((part, index) => (index % 2 ? make("mark", {}, part) : part));
  node.replaceChildren(...parts);
}
