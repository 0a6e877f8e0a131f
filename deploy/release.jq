# From `cargo metadata`, Cargo.lock ($lock) and `cargo tree` ($tree, one name@version a line): the packages that the program is made
# of, sorted. `cargo metadata` alone has those, too, that only the features of tests ask for.
def ref: "pkg:cargo/\(.name)@\(.version)";
($tree | split("\n") | map({key: ., value: true}) | from_entries) as $made_of
# Checksums by name@version.
| ($lock | split("[[package]]") | map(select(contains("checksum = "))
    | {key: (capture("name = \"(?<n>[^\"]+)\"\nversion = \"(?<v>[^\"]+)\"") | "\(.n)@\(.v)"),
       value: (capture("checksum = \"(?<c>[0-9a-f]+)\"").c)}) | from_entries) as $sums
| [.packages[] | select($made_of["\(.name)@\(.version)"])] as $packages
| ($packages | map({key: .id, value: ref}) | from_entries) as $refs
| (.resolve.nodes | map({key: .id, value: [.deps[] | select(any(.dep_kinds[]; .kind != "dev")) | $refs[.pkg] // empty] | sort})
    | from_entries) as $needs
| [$packages[] | {name, version, ref: ref, license: ((.license // "NOASSERTION") | gsub("/"; " OR ")),
    folder: (.manifest_path | sub("/Cargo.toml$"; "")), checksum: $sums["\(.name)@\(.version)"], needs: $needs[.id]}]
| sort_by(.ref)
