// What happened, newest first.
const token = localStorage.getItem("ctrlz-token");
const ask = async (address) => {
  const answer = await fetch(address, { headers: { Authorization: `Bearer ${token}` } });
  return answer.json();
};
const { projects } = await ask("/v1/projects");
const { operations } = await ask(`/v1/projects/${projects[0].project}/timeline`);
const log = document.getElementById("log");
for (const { kind, at_millis, files, steps, label } of operations) {
  const item = document.createElement("li");
  const what = steps.map((step) => step.label ?? step.tool ?? step.step).join(", ");
  const time = new Date(at_millis).toLocaleString();
  item.textContent = [time, kind, what || label, `${files ?? 0} files`].filter(Boolean).join(" · ");
  log.append(item);
}
