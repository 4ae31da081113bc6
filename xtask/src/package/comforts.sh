# Every page can be shown; apropos and the names of the helpers find some.
for page in /usr/share/man/man1/drystone*.1.gz; do
    man "$(basename "$page" .1.gz)" > /tmp/shown 2> /tmp/said
    [ -s /tmp/shown ] && [ ! -s /tmp/said ]
done
man drystone-build | grep -A 6 EXAMPLES
mandb --quiet
apropos drystone-mkfs
man mount.fuse.drystone | grep -q drystone-mount
# Each shell completes a command.
bash -c '. /usr/share/bash-completion/bash_completion
    _completion_loader drystone || [ $? = 124 ]
    COMP_WORDS=(drystone mkf) COMP_CWORD=1
    "$(complete -p drystone | sed "s/.*-F \([^ ]*\).*/\1/")" drystone mkf drystone
    echo "bash: ${COMPREPLY[*]}"; [ "${COMPREPLY[*]}" = mkfs ]'
zsh -c 'autoload -U compinit; compinit -D; [ "$_comps[drystone]" = _drystone ] && echo "zsh: $_comps[drystone]"'
fish -c 'complete -C "drystone mkf"' | tee /tmp/completed
grep -q ^mkfs /tmp/completed
