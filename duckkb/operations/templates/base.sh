# What is tested is a merge into the branch as it is now: its first parent is that branch. What the event names is older.
event() { jq -r "$1" "$GITHUB_EVENT_PATH"; }
before=$(event '.pull_request.base.sha // .merge_group.base_sha // .before // ""')
range=""
if [ "$GITHUB_EVENT_NAME" != push ] && [ "$(git rev-parse HEAD)" = "$GITHUB_SHA" ] &&
  git rev-parse --quiet --verify 'HEAD^2' > /dev/null; then
  range='HEAD^1..HEAD'
elif [ -n "${before//0/}" ]; then # the first push of a branch names nothing but zeros
  range="$before...HEAD"
elif git rev-parse --quiet --verify 'HEAD^1' > /dev/null; then
  range='HEAD^1..HEAD'
fi
# Who may label pull requests may let rules become weaker, or many records go; in a merge queue, and behind it, that was decided.
says() { [ "$(event ".pull_request == null or ([.pull_request.labels[]?.name] | index(\"$1\")) != null")" = true ]; }
lift=()
if says 'duckkb: weaker rules'; then lift=(--allow-weaker); fi
shrink=()
if says 'duckkb: many deletions'; then shrink=(--allow-shrink); fi
