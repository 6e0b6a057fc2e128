// Shows the run or the experiment that the address names: MLflow's clients print such addresses.
// Everything that comes from the server is put in as text. The token is kept in no storage.
const element = (id) => document.getElementById(id);

function named() {
  const run = /^#\/experiments\/(\d{1,20})\/runs\/([0-9a-f]{32})(?:[/?].*)?$/.exec(location.hash);
  if (run) return { title: `Run ${run[2]}`, command: `cloudml runs describe ${run[2]}`, path: `/${run[2]}` };
  return { title: "Runs", command: "cloudml runs list", path: "?limit=50" };
}

function table(title, pairs) {
  const box = document.createElement("table");
  box.createCaption().textContent = title;
  for (const [name, value] of pairs) {
    const row = box.insertRow();
    row.insertCell().textContent = name;
    row.insertCell().textContent = String(value);
  }
  return box;
}

function tablesOf(answer) {
  if (Array.isArray(answer.items)) {
    return [table("Runs", answer.items.map((run) => [run.name, `${run.state} ${run.uid}`]))];
  }
  const plain = Object.entries(answer).filter(([, value]) => value === null || typeof value !== "object");
  const groups = ["params", "metrics", "tags"].filter((name) => answer[name]);
  return [table("Run", plain), ...groups.map((name) => table(name, Object.entries(answer[name])))];
}

async function show(event) {
  event.preventDefault();
  element("problem").textContent = "";
  element("tables").replaceChildren();
  const headers = { Authorization: `Bearer ${element("token").value.trim()}` };
  try {
    const answer = await fetch(`../api/v1/runs${named().path}`, { headers, credentials: "omit", cache: "no-store" });
    const document_ = await answer.json();
    if (!answer.ok) throw new Error(document_.message || `the server answers ${answer.status}`);
    element("tables").replaceChildren(...tablesOf(document_));
  } catch (error) {
    element("problem").textContent = error.message;
  }
}

function describe() {
  const { title, command } = named();
  element("what").textContent = title;
  element("command").textContent = command;
  element("tables").replaceChildren();
}

element("form").addEventListener("submit", show);
window.addEventListener("hashchange", describe);
describe();
