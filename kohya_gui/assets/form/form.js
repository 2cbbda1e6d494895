// A training form: the tool bar, the essentials, the sections; it sends what is filled in and shows what the plan found.
const PAUSE_MS = 400; // of typing, after which the plan is asked for
const EXPERT_KEY = "kohya-expert-options";
const FORMS = [];

class Form {
  constructor({ element, props, watch, look, tab, familyDefaults, browse }) {
    this.props = props;
    this.look = look;
    this.tab = tab;
    this.values = new Values(tab, familyDefaults);
    this.report = {};
    this.words = [];
    this.onlyChanged = false;
    this.build(element.querySelector(".kform"), browse);
    watch(["value", "report"], () => this.receive());
    this.receive();
  }

  // What the server sends: another state, what a look found, or both. Until the first state the form stays hidden.
  receive() {
    const { value, report } = this.props;
    if (value === "") return;
    this.report = JSON.parse(report);
    const isFirst = this.root.classList.contains("waiting");
    if (value !== this.value) this.load(JSON.parse(value));
    this.take(this.report);
    if (isFirst) {
      this.root.classList.remove("waiting");
      this.look();
    }
  }

  build(root, browse) {
    const { essentials, sections } = SCHEMA.tabs[this.tab];
    const field = (name) => new Field(name, this.tab, this.values, browse[name] ?? "", () => this.changed());
    const names = [...essentials];
    names.splice(names.indexOf("pretrained_model_name_or_path") + 1, 0, FAMILY_FIELD);
    this.essentials = names.map(field);
    this.sections = sections.map(({ title, names }) => new Section(title, names.map(field), this.values));
    this.fields = new Map([...this.essentials, ...this.sections.flatMap((s) => s.fields)].map((f) => [f.name, f]));
    this.nothing = make("p", { class: "nothing", hidden: true }, "No option fits. Escape clears the search.");
    root.append(
      this.bar(),
      make("div", { class: "fields essentials" }, ...this.essentials.map((f) => f.element)),
      ...this.sections.map((section) => section.element),
      this.nothing,
    );
    this.root = root;
    root.classList.add("waiting");
    const page = root.closest(".page");
    page.addEventListener("click", (event) => {
      const target = event.target.closest("[data-jump]");
      if (target) this.jump(target.dataset.jump);
    });
    acceptDrops(page.querySelector(".presets"));
    this.showExpert(localStorage.getItem(EXPERT_KEY) === "yes");
  }

  bar() {
    this.search = make("input", {
      type: "search", id: `gui-${this.tab}-filter`, class: "search", placeholder: "Find an option", autocomplete: "off",
      "aria-label": "Find an option by name, label or help text", spellcheck: "false",
    });
    this.search.addEventListener("input", () => this.find(this.search.value));
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.find((this.search.value = ""));
    });
    this.found = make("span", { class: "found", role: "status" });
    this.changedSwitch = make("input", { type: "checkbox", id: `gui-${this.tab}-only-changed` });
    this.changedSwitch.addEventListener("input", () => {
      this.onlyChanged = this.changedSwitch.checked;
      this.refresh();
    });
    this.changedLabel = make("label", { for: this.changedSwitch.id }, "Only changed");
    this.expertSwitch = make("input", { type: "checkbox", id: `gui-${this.tab}-expert` });
    this.expertSwitch.addEventListener("input", () => {
      localStorage.setItem(EXPERT_KEY, this.expertSwitch.checked ? "yes" : "no");
      for (const form of FORMS) form.showExpert(this.expertSwitch.checked);
    });
    const switches = make("div", { class: "switches" },
      make("span", {}, this.changedSwitch, this.changedLabel),
      make("span", {}, this.expertSwitch, make("label", { for: this.expertSwitch.id }, "Expert options")));
    return make("div", { class: "tools", role: "search" }, this.search, this.found, switches);
  }

  showExpert(open) {
    this.expertSwitch.checked = open;
    this.root?.classList.toggle("experts", open);
    for (const section of this.sections) section.showExpert(open);
  }

  find(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const field of this.fields.values()) field.paint(field.matches(this.words) ? this.words : []);
    this.refresh();
  }

  refresh() {
    const look = { words: this.words, onlyChanged: this.onlyChanged, isAsked: this.report.asks === true };
    const top = this.essentials.map((field) => field.refresh(look));
    const rest = this.sections.map((section) => section.refresh(look));
    const visible = top.filter((is) => is.visible).length + rest.reduce((sum, is) => sum + is.visible, 0);
    const changed = top.filter((is) => is.changed).length + rest.reduce((sum, is) => sum + is.changed, 0);
    this.found.textContent = this.words.length ? `${visible} ${visible === 1 ? "option" : "options"}` : "";
    this.changedLabel.textContent = changed ? `Only changed (${changed})` : "Only changed";
    this.nothing.hidden = visible > 0;
  }

  // A field was edited: everything follows at once here, the plan after a pause.
  changed() {
    this.followFamily();
    this.send();
    this.refresh();
  }

  send() {
    this.value = this.props.value = JSON.stringify(this.values.state);
    clearTimeout(this.timer);
    this.timer = setTimeout(this.look, PAUSE_MS);
  }

  // Another state: nothing of the old one stays.
  load(state) {
    clearTimeout(this.timer);
    this.value = this.props.value;
    this.values.state = state;
    this.values.family = null;
    for (const field of this.fields.values()) field.show();
  }

  take(report) {
    if (this.followFamily()) this.send();
    const problems = report.problems ?? [];
    for (const [name, field] of this.fields) field.report(problems.filter((problem) => problem.option === name));
    this.fields.get("pretrained_model_name_or_path").help.dataset.family = report.label ?? "";
    this.refresh();
  }

  familyNow() {
    const chosen = this.values.state[FAMILY_FIELD];
    return this.report.family ?? (chosen in SCHEMA.families ? chosen : null);
  }

  // True if that filled fields in.
  followFamily() {
    const family = this.familyNow();
    if (family === this.values.family) return false;
    const filled = this.values.enterFamily(family);
    for (const field of this.fields.values()) field.show();
    return filled;
  }

  jump(name) {
    const field = this.fields.get(name);
    if (!field) return;
    if (this.words.length) this.find((this.search.value = ""));
    if (this.onlyChanged) {
      this.onlyChanged = this.changedSwitch.checked = false;
      this.refresh();
    }
    this.sections.find((section) => section.fields.includes(field))?.reveal(field);
    field.element.scrollIntoView({ block: "center", behavior: "smooth" });
    field.control.focus({ preventScroll: true });
    field.element.classList.remove("flash");
    void field.element.offsetWidth; // so that the animation starts again
    field.element.classList.add("flash");
  }
}

// A settings file dropped on the row of presets goes the way of one chosen with its button.
function acceptDrops(row) {
  const stop = (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return false;
    event.preventDefault();
    row.classList.toggle("drop", event.type === "dragover");
    return true;
  };
  for (const kind of ["dragover", "dragleave"]) row.addEventListener(kind, stop);
  row.addEventListener("drop", (event) => {
    if (!stop(event)) return;
    const input = row.querySelector("input[type=file]");
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, textarea, select, [contenteditable=true]")) return;
  const form = FORMS.find(({ search }) => search.offsetParent !== null);
  if (!form) return;
  event.preventDefault();
  form.search.focus();
});

// Tabs are drawn when they are first looked at, perhaps before this script ran: those wait in a list.
const waiting = window.kohyaForms ?? [];
window.kohyaForms = { push: (place) => FORMS.push(new Form(place)) };
for (const place of waiting) window.kohyaForms.push(place);
