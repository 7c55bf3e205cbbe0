# stamps.sh: sourced by tests/templates.sh, tests/spills.sh and .ci/run: what has compiled well before need not compile again.
# A stamp is the digest of everything that was compiled: code, compiler, options, limits. It is an empty file in LATHE_TEST_CACHE, by
# default lathe-tests in the user's cache folder, or its first 16 digits are a line of tests/passed/NAME.txt, which is part of this tree:
# so a clean machine knows what another one has compiled. LATHE_TEST_CACHE set to nothing: nothing is known; a full run: no list is.
# Who sources it may set stamp_name before, and call stamps_renew at the end, which writes the list where LATHE_TEST_RENEW is set.

stamps=${LATHE_TEST_CACHE-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/lathe-tests}
stamp_list=tests/passed/${stamp_name:-none}.txt
if [ -n "${LATHE_TEST_FULL:-}" ] || [ -z "$stamps" ]; then
    stamp_list=
fi
if [ -n "$stamps" ]; then
    stamps=$stamps/compiled
    mkdir -p "$stamps" 2>/dev/null || stamps=
fi
stamp_compiler=${stamp_nvcc-$(nvcc --version 2>/dev/null | sed -n 's/.*release //p')}

# stamp_code <text: its tokens, by the program lathe_code beside the tool (LATHE): comments and the formatter change no key.
stamp_code() {
    "$(dirname "${LATHE:-build/lathe}")/lathe_code"
}

# stamp_key WORD... <text: names what is compiled.
stamp_key() {
    { printf '%s\n' "$stamp_compiler" "$@"; cat; } | sha256sum | cut -d ' ' -f 1
}

# The line of a key in the list.
stamp_line() {
    printf '%.16s\n' "$1"
}

stamp_renewed() {
    [ -z "${stamp_said:-}" ] || stamp_line "$1" >>"$stamp_said"
}

# stamp_known KEY: it has compiled well before.
stamp_known() {
    { [ -n "$stamps" ] && [ -e "$stamps/$1" ] && touch -c "$stamps/$1"; } ||
        { [ -n "$stamp_list" ] && [ -e "$stamp_list" ] && grep -qxF "$(stamp_line "$1")" "$stamp_list"; } || return
    stamp_renewed "$1"
}

stamp_add() {
    [ -z "$stamps" ] || : >"$stamps/$1"
    stamp_renewed "$1"
}

# What was not used for a month goes.
stamps_prune() {
    [ -z "$stamps" ] || find "$stamps" -type f -mtime +30 -delete 2>/dev/null
}

# stamps_log FILE: from here on, in this shell and those below, keys of what is good are written there.
stamps_log() {
    stamp_said=$1
    : >"$stamp_said"
    export stamp_said
}

# The list is what was good in this run.
stamps_renew() {
    [ -z "${LATHE_TEST_RENEW:-}" ] || [ -n "${LATHE_TEST_FULL:-}" ] || {
        mkdir -p tests/passed
        LC_ALL=C sort -u "$stamp_said" >"tests/passed/$stamp_name.txt"
    }
}
