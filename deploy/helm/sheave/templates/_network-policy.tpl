{{/* TCP ports of a rule, as JSON under `ports`. */}}
{{- define "sheave.ports" -}}
{{- $ports := list -}}
{{- range . }}{{ $ports = append $ports (dict "port" (int .) "protocol" "TCP") | uniq }}{{ end -}}
{{ dict "ports" $ports | toJson }}
{{- end }}

{{/* Changes the rules for controllers to what the values say: (list $ spec). */}}
{{- define "sheave.networkPolicy" -}}
{{- $root := index . 0 -}}
{{- $spec := index . 1 -}}
{{- $values := $root.Values.networkPolicy -}}
{{- /* Policies see packets after the translation of the Service's port. Where Helm asks the cluster, it knows the port: not in `helm template`. */ -}}
{{- $ports := $values.apiServer.ports -}}
{{- range (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "kubernetes").ports }}{{ $ports = append $ports .port }}{{ end -}}
{{- $apiServer := include "sheave.ports" $ports | fromJson -}}
{{- range $values.apiServer.cidrs }}{{ include "sheave.append" (list $apiServer "to" (list (dict "ipBlock" (dict "cidr" .)))) }}{{ end -}}
{{- $_ := set $spec "egress" (list $apiServer (include "sheave.ports" (list (include "sheave.reportPort" $root)) | fromJson)) -}}
{{- if $root.Values.karmada.enabled -}}
{{- $karmada := include "sheave.ports" $root.Values.karmada.ports | fromJson -}}
{{- include "sheave.append" (list $karmada "ports" (list (dict "port" 53 "protocol" "UDP") (dict "port" 53 "protocol" "TCP"))) -}}
{{- include "sheave.append" (list $spec "egress" (list $karmada)) -}}
{{- end -}}
{{- include "sheave.append" (list $spec "egress" $values.extraEgress) -}}
{{- $scrapers := $values.metricsFrom -}}
{{- with $root.Values.metrics.prometheus.namespace }}{{ $scrapers = append $scrapers (dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" .))) }}{{ end -}}
{{- if $scrapers }}{{ include "sheave.append" (list $spec "ingress" (list (dict "from" $scrapers "ports" (list (dict "port" "metrics" "protocol" "TCP"))))) }}{{ end -}}
{{- include "sheave.append" (list $spec "ingress" $values.extraIngress) -}}
{{- end }}
