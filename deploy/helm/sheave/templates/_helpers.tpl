{{/* Labels of an object: (list $ component). */}}
{{- define "sheave.labels" -}}
{{- $root := index . 0 -}}
{app.kubernetes.io/name: sheave, app.kubernetes.io/part-of: sheave, app.kubernetes.io/component: {{ index . 1 }}, app.kubernetes.io/managed-by: {{ $root.Release.Service }}, helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}}
{{- end }}

{{- define "sheave.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest | quote }}
{{- else -}}
{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) | quote }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "sheave.capabilities" -}}
{{- $all := .Values.gateway.capabilities -}}
{{- if eq .Values.announce "l2" -}}{{- $all = append $all "NET_RAW" | uniq -}}{{- end -}}
{{ toJson $all }}
{{- end }}

{{/* Probes and volumes rely on what is given here. */}}
{{- define "sheave.gatewayConfig" -}}
{{- $own := dict "admin" (dict "listen" "127.0.0.1:9841") "stateDir" "/var/lib/sheave" -}}
{{- if eq .Values.announce "l2" -}}
{{- $_ := set $own "announce" (dict "mode" "l2" "heartbeat" (dict "keys" "/etc/sheave-heartbeat-keys")) -}}
{{- else if eq .Values.announce "bgp" -}}
{{- $_ := set $own "announce" (dict "mode" "bgp") -}}
{{- end -}}
{{- if and .Values.gatewayAPI.enabled (ne .Values.gatewayAPI.controllerName "sheave.dev/gateway") -}}
{{- $_ := set $own "gatewayAPI" (dict "controllerName" .Values.gatewayAPI.controllerName) -}}
{{- end -}}
{{ toYaml (mergeOverwrite (deepCopy .Values.gateway.config) $own) }}
{{- end }}

{{- define "sheave.controllerConfig" -}}
{{- $gateways := dict "service" (printf "%s/sheave-gateways" .Release.Namespace) "tokenFile" "/var/run/secrets/sheave.dev/gateways/token" -}}
{{- $election := dict "lease" (printf "%s/sheave-controller" .Release.Namespace) -}}
{{- $own := dict "gateways" $gateways "leaderElection" $election -}}
{{- if and .Values.gatewayAPI.enabled (ne .Values.gatewayAPI.controllerName "sheave.dev/gateway") -}}
{{- $_ := set $own "gatewayAPI" (dict "controllerName" .Values.gatewayAPI.controllerName) -}}
{{- end -}}
{{ toYaml (mergeOverwrite (deepCopy .Values.controller.config) $own) }}
{{- end }}

{{/* As sheave.labels, with those by which the Prometheus operator selects. */}}
{{- define "sheave.monitorLabels" -}}
{{- $root := index . 0 -}}
{{ merge (include "sheave.labels" . | fromYaml) $root.Values.podMonitor.labels | toJson }}
{{- end }}

{{/* The files that FRR is started with, by name: (list $ rack). */}}
{{- define "sheave.frrFiles" -}}
{{- $root := index . 0 -}}
frr.conf: |
  {{- $root.Values.frr.config | default (include "sheave.frrConf" .) | nindent 2 }}
daemons: |
  # Which daemons of FRR run. bgpd and bfdd listen on the node's addresses.
  bgpd=yes
  bfdd=yes
  vtysh_enable=yes
  zebra_options="-A 127.0.0.1 -s 90000000"
  bgpd_options="-A 127.0.0.1"
  bfdd_options="-A 127.0.0.1"
render: |
  {{- $root.Files.Get "files/frr-render" | nindent 2 }}
{{- end }}

{{/* The Pod's profile, as SecurityContextConstraints name it. */}}
{{- define "sheave.seccompOfConstraints" -}}
{{- with .Values.gateway.seccompProfile -}}
{{- if eq .type "Localhost" -}}
{{ required "gateway.seccompProfile.localhostProfile is missing" .localhostProfile | printf "localhost/%s" }}
{{- else -}}
{{ get (dict "RuntimeDefault" "runtime/default" "Unconfined" "unconfined") .type }}
{{- end -}}
{{- end -}}
{{- end }}
