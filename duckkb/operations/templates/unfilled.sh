- name: Say where duckkb is installed from
  if: steps.base.outputs.differs == 'true'
  run: |
    echo "::error::This file does not say where duckkb is installed from. Put the address of duckkb's repository in the place of HOST and OWNER, and a commit of it: duckkb init --github --install @ADDRESS@"
    exit 1
