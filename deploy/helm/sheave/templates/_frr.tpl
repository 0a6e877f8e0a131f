{{/* frr.conf of the nodes of a rack, or of those without one, as the values have it: (list $ rack). deploy/examples/bgp-frr/frr.conf says why. */}}
{{- define "sheave.frrConf" -}}
{{- $frr := (index . 0).Values.frr -}}
{{- $rack := index . 1 -}}
{{- $peers := list -}}
{{- range $frr.peers }}{{ if eq (.rack | default $rack) $rack }}{{ $peers = append $peers . }}{{ end }}{{ end -}}
frr defaults datacenter
log stdout informational
!
route-map SHEAVE permit 10
 match interface sheave0
exit
route-map SHEAVE permit 20
 match interface sheave0-gshut
 set community graceful-shutdown additive
exit
!
{{- range $index, $advertisement := $frr.advertisements }}
{{- range $address := .addresses }}
{{- $family := include "sheave.family" $address }}
{{- $most := eq $family "ipv6" | ternary 128 32 }}
{{- $least := eq $family "ipv6" | ternary $advertisement.aggregationLengthV6 $advertisement.aggregationLength | default $most | int }}
{{- $length := splitList "/" $address | last | int }}
{{- if and (ne $least $most) (ne $least $length) }}
{{- fail (printf "frr.advertisements[%d]: an aggregate is as long as its prefix: write %s as prefixes with /%d" $index $address $least) }}
{{- end }}
{{ eq $family "ipv6" | ternary "ipv6" "ip" }} prefix-list ADVERTISEMENT-{{ $index }}-{{ $family }} permit {{ $address }}
{{- if ne $least $length }} ge {{ $least }}{{ end }}
{{- end }}
{{- $families := dict }}
{{- range .addresses }}{{ $_ := set $families (include "sheave.family" .) true }}{{ end }}
{{- range $family := keys $families | sortAlpha }}
route-map TO-ROUTERS permit {{ add (mul $index 2) (eq $family "ipv6" | ternary 11 10) }}
 match {{ eq $family "ipv6" | ternary "ipv6" "ip" }} address prefix-list ADVERTISEMENT-{{ $index }}-{{ $family }}
{{- $communities := list }}{{ $large := list }}
{{- range $advertisement.communities }}
{{- if hasPrefix "large:" . }}{{ $large = append $large (trimPrefix "large:" .) }}{{ else }}{{ $communities = append $communities . }}{{ end }}
{{- end }}
{{- with $communities }}
 set community {{ join " " . }} additive
{{- end }}
{{- with $large }}
 set large-community {{ join " " . }} additive
{{- end }}
{{- with $advertisement.localPref }}
 set local-preference {{ int64 . }}
{{- end }}
 on-match goto 60000
exit
{{- end }}
{{- end }}
{{- if $frr.advertisements }}
route-map TO-ROUTERS deny 50000
exit
{{- end }}
bgp community-list standard GRACEFUL-SHUTDOWN permit graceful-shutdown
route-map TO-ROUTERS permit 60000
 match community GRACEFUL-SHUTDOWN
 set local-preference 0
exit
route-map TO-ROUTERS permit 60001
exit
route-map FROM-ROUTERS deny 10
exit
!
router bgp {{ int64 $frr.myASN }}
 bgp router-id $(ROUTER_ID)
 no bgp default ipv4-unicast
{{- range $peers }}
{{- $name := .peerAddress | default .interface }}
 neighbor {{ $name }}{{ if not .peerAddress }} interface{{ end }} remote-as {{ .dynamicASN | default (int64 .peerASN) }}
{{- with .peerPort }}
 neighbor {{ $name }} port {{ . }}
{{- end }}
{{- with .sourceAddress }}
 neighbor {{ $name }} update-source {{ . }}
{{- end }}
{{- if .ebgpMultiHop }}
 neighbor {{ $name }} ebgp-multihop
{{- end }}
{{- if or .keepaliveTime .holdTime }}
 neighbor {{ $name }} timers {{ .keepaliveTime | default "30s" | trimSuffix "s" }} {{ .holdTime | default "90s" | trimSuffix "s" }}
{{- end }}
 neighbor {{ $name }} timers connect {{ .connectTime | default "1s" | trimSuffix "s" }}
{{- with dig "bfdProfile" "sheave" . }}
 neighbor {{ $name }} bfd profile {{ . }}
{{- end }}
{{- with .passwordSecret }}
 neighbor {{ $name }} password $({{ .name }})
{{- end }}
{{- end }}
{{- range $family := list "ipv4" "ipv6" }}
 address-family {{ $family }} unicast
  redistribute connected route-map SHEAVE
{{- range $peers }}
{{- if or (not .peerAddress) .dualStackAddressFamily (eq $family (include "sheave.family" (.peerAddress | default ""))) }}
{{- $name := .peerAddress | default .interface }}
  neighbor {{ $name }} activate
  neighbor {{ $name }} route-map TO-ROUTERS out
  neighbor {{ $name }} route-map FROM-ROUTERS in
{{- end }}
{{- end }}
{{- range $frr.advertisements }}
{{- $length := eq $family "ipv6" | ternary .aggregationLengthV6 .aggregationLength }}
{{- range .addresses }}
{{- if and $length (eq $family (include "sheave.family" .)) (ne (int $length) (eq $family "ipv6" | ternary 128 32)) }}
  aggregate-address {{ . }} summary-only
{{- end }}
{{- end }}
{{- end }}
 exit-address-family
{{- end }}
exit
!
bfd
{{- range $frr.bfdProfiles }}
 profile {{ .name }}
{{- with .transmitInterval }}
  transmit-interval {{ . }}
{{- end }}
{{- with .receiveInterval }}
  receive-interval {{ . }}
{{- end }}
{{- with .detectMultiplier }}
  detect-multiplier {{ . }}
{{- end }}
{{- with .minimumTtl }}
  minimum-ttl {{ . }}
{{- end }}
{{- if .passiveMode }}
  passive-mode
{{- end }}
 exit
{{- end }}
exit
{{- end }}

{{/* Versions of the Secrets with passwords, where Helm can read them: not in `helm template`. A hash of their data would let whoever reads the
DaemonSet try passwords. */}}
{{- define "sheave.frrPasswordVersions" -}}
{{- range (include "sheave.frrPasswords" . | fromYamlArray) }}
{{- lookup "v1" "Secret" (include "sheave.namespace" $) .secret.name | dig "metadata" "resourceVersion" "" }},
{{- end }}
{{- end }}

{{- define "sheave.family" }}{{ contains ":" . | ternary "ipv6" "ipv4" }}{{ end }}

{{/* The racks that peers name, as JSON under `all`; "" for all other nodes comes first. */}}
{{- define "sheave.frrRacks" -}}
{{- $racks := list -}}
{{- range .Values.frr.peers }}{{ with .rack }}{{ $racks = append $racks . }}{{ end }}{{ end -}}
{{ dict "all" (prepend ($racks | uniq | sortAlpha) "") | toJson }}
{{- end }}

{{/* Secrets with passwords: those of peers by their names, and the one whose keys `config` may name. */}}
{{- define "sheave.frrPasswords" -}}
{{- $names := list -}}
{{- range .Values.frr.peers }}{{ with .passwordSecret }}{{ $names = append $names .name }}{{ end }}{{ end -}}
- secret: {name: {{ .Values.frr.secretName | quote }}, optional: true}
{{- range $names | uniq | sortAlpha }}
- secret: {name: {{ . | quote }}, items: [{key: password, path: {{ . | quote }}}]}
{{- end }}
{{- end }}

{{/* The files that FRR is started with, by name: (list $ rack). */}}
{{- define "sheave.frrFiles" -}}
{{- $root := index . 0 -}}
frr.conf: |
  {{- $root.Values.frr.config | default (include "sheave.frrConf" .) | nindent 2 }}
{{- range $file := list "daemons" "render" }}
{{ $file }}: |
  {{- include "sheave.text" (list $root (printf "frr/%s" $file)) | nindent 2 }}
{{- end }}
{{- end }}

{{/* Limits a Pod to nodes, besides what it has: (list pod expression). */}}
{{- define "sheave.onlyNodes" -}}
{{- $pod := index . 0 -}}
{{- $expression := index . 1 -}}
{{- $affinity := $pod.affinity | default dict -}}
{{- $terms := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list dict) $affinity -}}
{{- range $terms }}{{ include "sheave.append" (list . "matchExpressions" (list $expression)) }}{{ end -}}
{{- $nodeAffinity := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $pod "affinity" (merge (dict "nodeAffinity" (merge $nodeAffinity ($affinity.nodeAffinity | default dict))) $affinity) -}}
{{- end }}
