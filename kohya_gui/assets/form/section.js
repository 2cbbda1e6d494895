// A closed section of fields, with its expert options one level further in.
class Section {
  constructor(title, fields, values) {
    this.title = title;
    this.fields = fields;
    const common = fields.filter((field) => !values.specs[field.name].expert);
    const expert = fields.filter((field) => values.specs[field.name].expert);
    this.count = make("span", { class: "count" });
    const summary = make("summary", {}, make("span", { class: "dot" }), make("span", { class: "name" }, title), this.count);
    this.element = make("details", { class: "group", "data-section": title }, summary);
    if (common.length) this.element.append(make("div", { class: "fields" }, ...common.map((field) => field.element)));
    if (expert.length) {
      this.inner = make("details", { class: "expert" }, make("summary", {}, "Expert options"));
      this.inner.append(make("div", { class: "fields" }, ...expert.map((field) => field.element)));
      this.element.append(this.inner);
      this.expert = expert;
    }
    this.before = null; // what was open before a search opened what it found
  }

  refresh(look) {
    const found = this.fields.map((field) => [field, field.refresh(look)]);
    const visible = found.filter(([, is]) => is.visible);
    const changed = found.filter(([, is]) => is.changed).length;
    const hits = look.words.length ? `${visible.length} found` : "";
    this.count.textContent = [hits, changed ? `${changed} changed` : ""].filter(Boolean).join(" · ");
    this.element.hidden = visible.length === 0;
    if (this.inner) this.inner.hidden = !visible.some(([field]) => this.expert.includes(field));
    const levels = this.fields.flatMap((field) => field.problems.map((problem) => problem.level));
    this.element.dataset.level = ["error", "warning"].find((level) => levels.includes(level)) ?? "";
    this.openFor(look.words.length > 0 || look.onlyChanged);
    return { visible: visible.length, changed };
  }

  openFor(searching) {
    const parts = [this.element, this.inner].filter(Boolean);
    if (searching) {
      this.before ??= parts.map((part) => part.open);
      for (const part of parts) part.open = true;
    } else if (this.before) {
      parts.forEach((part, index) => (part.open = this.before[index]));
      this.before = null;
    }
  }

  showExpert(open) {
    if (!this.inner) return;
    this.inner.open = open;
    if (this.before) this.before[1] = open;
  }

  reveal(field) {
    this.element.open = true;
    if (this.expert?.includes(field)) this.inner.open = true;
  }
}
