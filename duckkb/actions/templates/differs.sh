# Where no record, no type and none of the files that a gate rests on differs there is nothing to install or to judge.
@BASE@
watched=(config.yaml ontology data)
if grep -rqs source config.yaml ontology; then watched=(.); fi # documents lie anywhere in the folder of the base
differs=true
if [ -n "$range" ] && git diff --quiet "$range" -- "${watched[@]}" ':(top).github' ':(top).gitea' ':(top).forgejo' \
  ':(top).pre-commit-config.yaml' ':(top).gitlab-ci.yml' ':(top,glob)**/.gitattributes'; then differs=false; fi
echo "differs=$differs" >> "$GITHUB_OUTPUT"
