// The page's own file dialog. It lists folders of the server's machine and writes the chosen path into a field.
const dialog = element.querySelector("dialog");
const path = dialog.querySelector("input");
const list = dialog.querySelector("ul");
const note = dialog.querySelector("p");
const choose = dialog.querySelector("[data-do=choose]");
let target = null;

function row(label, folder, onclick) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = label;
  button.className = folder ? "folder" : "file";
  button.onclick = onclick;
  item.append(button);
  list.append(item);
}

async function show(where) {
  const answer = await server.list_for_page({ path: where, kind: target.kind });
  path.value = answer.folder;
  note.textContent = answer.message;
  list.replaceChildren();
  for (const drive of answer.drives) row(drive, true, () => show(drive));
  if (answer.parent !== null) row("..", true, () => show(answer.parent));
  for (const entry of answer.entries) {
    row(entry.name, entry.folder, () => (entry.folder ? show(entry.path) : finish(entry.path)));
  }
}

function finish(chosen) {
  const input = document.getElementById(target.field);
  input.value = chosen;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  dialog.close();
  input.focus();
}

window.kohyaBrowse = (field, kind, from) => {
  target = { field, kind };
  choose.hidden = kind === "file";
  dialog.showModal();
  show(document.getElementById(field).value || from);
};
choose.onclick = () => finish(path.value);
dialog.querySelector("[data-do=cancel]").onclick = () => dialog.close();
path.onkeydown = (event) => {
  if (event.key === "Enter") show(path.value);
};
