# Where no record, no type and none of the files that a gate rests on differs there is nothing to install or to judge.
@BASE@
watched=(config.yaml ontology data)
sources=$(grep -rhsw -A 1 source: config.yaml ontology || true)
if [ -n "$sources" ]; then # documents lie in the folder in the line below `source:`; where one is written otherwise, all counts
  mapfile -t folders < <(sed -nE 's#^ +path: ([A-Za-z0-9_./-]+)$#\1#p' <<< "$sources")
  watched+=("${folders[@]}" ':(top,glob)**/.gitignore')
  if [ "$(grep -cw source: <<< "$sources")" != "${#folders[@]}" ]; then watched=(.); fi
fi
differs=true
if [ -n "$range" ] && git diff --quiet "$range" -- "${watched[@]}" ':(top).github' ':(top).gitea' ':(top).forgejo' \
  ':(top).pre-commit-config.yaml' ':(top).gitlab-ci.yml' ':(top,glob)**/.gitattributes'; then differs=false; fi
echo "differs=$differs" >> "$GITHUB_OUTPUT"
