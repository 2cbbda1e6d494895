// What a form holds: which fields are filled in, what differs from its default, and which options act.
const SCHEMA = JSON.parse(props.schema);
const FAMILY_FIELD = SCHEMA.familyField;
const FRESH_FIELD = SCHEMA.freshField;

class Values {
  constructor(tab, familyDefaults) {
    this.familyDefaults = familyDefaults; // as in config.toml
    const { differing, families } = SCHEMA.tabs[tab];
    this.specs = { ...SCHEMA.options, ...differing };
    this.specs[FAMILY_FIELD] = {
      label: "Model family", kind: "choice", default: "", choices: families,
      help: "Read from the model's file where it can be. Choose it here, so that the options of its kind appear.",
    };
    this.state = {};
    this.family = null; // of the model at hand, once it is known
  }

  // Another family: what config.toml has for it comes in, as long as nothing else was loaded. True if that changed anything.
  enterFamily(family) {
    const before = JSON.stringify(this.state);
    if (this.state[FRESH_FIELD]) {
      for (const [name, shown] of Object.entries(this.familyDefaults[this.family] ?? {})) {
        if (this.state[name] === shown) delete this.state[name];
      }
      for (const [name, shown] of Object.entries(this.familyDefaults[family] ?? {})) this.state[name] ??= shown;
    }
    this.family = family;
    return JSON.stringify(this.state) !== before;
  }

  isFilled(name) {
    return name in this.state;
  }

  defaultOf(name) {
    const spec = this.specs[name];
    return spec.defaults?.[this.family] ?? spec.default;
  }

  shown(name) {
    return this.state[name] ?? this.defaultOf(name);
  }

  // A text that is empty and a switch that stands as it would anyway are unset.
  set(name, shown) {
    const unset = typeof shown === "boolean" ? shown === this.defaultOf(name) : shown.trim() === "";
    if (unset) delete this.state[name];
    else this.state[name] = shown;
  }

  isChanged(name) {
    if (!this.isFilled(name)) return false;
    const [value, usual] = [this.state[name], this.defaultOf(name)];
    if (this.specs[name].kind === "number" && value.trim() !== "" && usual !== "") {
      if (Number(value) === Number(usual)) return false;
    }
    return value !== usual;
  }

  // Why an option has no effect as things stand; "" if it has one.
  whyIdle(name) {
    const { missing, onlyFor, onlyWith = {} } = this.specs[name];
    if (missing) return "not yet available";
    if (onlyFor && !fits(onlyFor, this.family)) {
      return this.family ? `no effect for ${SCHEMA.families[this.family].label}` : `for ${familiesWith(onlyFor)} only`;
    }
    for (const [other, wanted] of Object.entries(onlyWith)) {
      if (other in this.specs && !holds(wanted, this.shown(other))) return this.words(other, wanted);
    }
    return "";
  }

  words(other, wanted) {
    const { label } = this.specs[other];
    if (wanted === "set" || wanted.includes(true)) return `no effect without “${label}”`;
    if (wanted.includes(false)) return `no effect with “${label}”`;
    return `no effect with ${label} “${this.shown(other) || "unset"}”`;
  }
}

function fits(wanted, family) {
  if (!family) return false;
  return wanted.includes(family) || SCHEMA.families[family].traits.some((trait) => wanted.includes(trait));
}

function familiesWith(wanted) {
  const names = Object.keys(SCHEMA.families).filter((family) => fits(wanted, family));
  return names.map((name) => SCHEMA.families[name].label).join(", ");
}

function holds(wanted, shown) {
  if (wanted === "set") return shown !== false && shown !== "" && !(typeof shown === "string" && Number(shown) === 0);
  return wanted.some((one) => {
    if (one === null) return shown === "";
    if (typeof one === "number") return shown !== "" && Number(shown) === one;
    return String(one).toLowerCase() === String(shown).toLowerCase();
  });
}
