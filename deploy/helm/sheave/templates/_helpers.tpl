{{- define "sheave.fullname" -}}
{{ .Values.fullnameOverride | default .Values.nameOverride | default "sheave" | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "sheave.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/* The name of an object, by its name in the kustomizations: (list $ name). */}}
{{- define "sheave.name" -}}
{{ regexReplaceAll "^sheave(-|$)" (index . 1) (printf "%s${1}" (include "sheave.fullname" (index . 0))) }}
{{- end }}

{{- define "sheave.class" -}}
{{ .Values.loadBalancerClass | default "sheave.dev/l4" }}
{{- end }}

{{/* The account of a component: (list $ component). */}}
{{- define "sheave.serviceAccountName" -}}
{{- $account := (index (index . 0).Values (index . 1)).serviceAccount -}}
{{ $account.name | default (ternary (printf "%s-%s" (include "sheave.fullname" (index . 0)) (index . 1)) "default" $account.create) }}
{{- end }}

{{- define "sheave.selector" -}}
{app.kubernetes.io/name: sheave, app.kubernetes.io/component: {{ . }}}
{{- end }}

{{/* Labels of an object, as JSON: (list $ component). */}}
{{- define "sheave.labels" -}}
{{- $root := index . 0 -}}
{{- $chart := printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- $labels := dict "helm.sh/chart" $chart "app.kubernetes.io/managed-by" $root.Release.Service "app.kubernetes.io/instance" $root.Release.Name "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/part-of" "sheave" -}}
{{- include "sheave.replace" (list $labels $root.Values.commonLabels) -}}
{{- $_ := set $labels "app.kubernetes.io/name" "sheave" -}}
{{- with index . 1 }}{{ $_ := set $labels "app.kubernetes.io/component" . }}{{ end -}}
{{ toJson $labels }}
{{- end }}

{{/* Metadata, as JSON, of an object that the kustomizations do not have: (list $ name component). */}}
{{- define "sheave.metadata" -}}
{{- $metadata := dict "name" (printf "%s-%s" (include "sheave.fullname" (index . 0)) (index . 1)) "namespace" (include "sheave.namespace" (index . 0)) -}}
{{- include "sheave.annotate" (list $metadata (index . 0).Values.commonAnnotations) -}}
{{ set $metadata "labels" (include "sheave.labels" (list (index . 0) (index . 2)) | fromJson) | toJson }}
{{- end }}

{{/* Adds annotations: (list metadata annotations). */}}
{{- define "sheave.annotate" -}}
{{- if index . 1 }}{{ $_ := set (index . 0) "annotations" (merge (dict) (index . 1) ((index . 0).annotations | default dict)) }}{{ end -}}
{{- end }}

{{/* Adds labels: (list metadata labels). Those that objects are found by stay. */}}
{{- define "sheave.label" -}}
{{- $_ := set (index . 0) "labels" (merge (dict) ((index . 0).labels | default dict) (index . 1)) -}}
{{- end }}

{{/* Replaces fields of a dictionary by those of another, also by empty ones: (list dictionary other). */}}
{{- define "sheave.replace" -}}
{{- $into := index . 0 -}}
{{- range $key, $value := index . 1 }}{{ $_ := set $into $key $value }}{{ end -}}
{{- end }}

{{/* Appends to a field that is a list: (list dictionary field items). */}}
{{- define "sheave.append" -}}
{{- with index . 2 }}{{ $_ := set (index $ 0) (index $ 1) (concat (index (index $ 0) (index $ 1) | default list) .) }}{{ end -}}
{{- end }}

{{/* An image: (list $ values). */}}
{{- define "sheave.image" -}}
{{- $image := index . 1 -}}
{{- $registry := (index . 0).Values.global.imageRegistry | default $image.registry -}}
{{- if $registry }}{{ printf "%s/" (trimSuffix "/" $registry) }}{{ end }}{{ $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* The text of a file of the kustomizations, with the namespace, accounts, class and controller name of this release: (list $ file). */}}
{{- define "sheave.text" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (printf "files/%s" (index . 1)) -}}
{{- if not $text }}{{ fail (printf "the chart has no files/%s: it is a link to a folder outside of the chart, which `helm package` and `helm install` follow; fetch the whole repository, or use a released chart" (index . 1)) }}{{ end -}}
{{- $account := printf "system:serviceaccount:%s:%s" (include "sheave.namespace" $root) (include "sheave.serviceAccountName" (list $root "controller")) -}}
{{- $text = replace "system:serviceaccount:sheave-system:sheave-controller" $account $text -}}
{{- $text = replace "sheave-system" (include "sheave.namespace" $root) $text -}}
{{- $class := include "sheave.class" $root -}}
{{- if ne $class "sheave.dev/l4" -}}
{{- /* The suffix of another class is a hash that templates cannot compute. */ -}}
{{- $text = replace "name == 'sheave.dev/load-balancer-cleanup'" "name.startsWith('sheave.dev/load-balancer-cleanup-')" $text -}}
{{- end -}}
{{- if $root.Values.handleUnclassified }}{{ $text = replace "in ['sheave.dev/l4']" "in ['sheave.dev/l4', '']" $text }}{{ end -}}
{{- $text = replace "'sheave.dev/gateway'" (printf "'%s'" $root.Values.gatewayAPI.controllerName) $text -}}
{{ replace "'sheave.dev/l4'" (printf "'%s'" $class) $text }}
{{- end }}

{{/* The objects in a file of the kustomizations as they are in this release, as JSON under `items`: (list $ file). */}}
{{- define "sheave.objects" -}}
{{- $root := index . 0 -}}
{{- $items := list -}}
{{- range regexSplit "(?m)^---\\n" (include "sheave.text" .) -1 -}}
{{- $object := fromYaml . -}}
{{- if $object.kind -}}
{{- $metadata := $object.metadata -}}
{{- $component := index ($metadata.labels | default dict) "app.kubernetes.io/component" | default "" -}}
{{- $_ := set $metadata "name" (include "sheave.name" (list $root $metadata.name)) -}}
{{- $_ := set $metadata "labels" (include "sheave.labels" (list $root $component) | fromJson) -}}
{{- include "sheave.annotate" (list $metadata $root.Values.commonAnnotations) -}}
{{- with $object.roleRef }}{{ $_ := set . "name" (include "sheave.name" (list $root .name)) }}{{ end -}}
{{- range $object.subjects }}{{ $_ := set . "name" (include "sheave.serviceAccountName" (list $root $component)) }}{{ end -}}
{{- if eq $object.kind "ServiceAccount" }}{{ $_ := set $metadata "name" (include "sheave.serviceAccountName" (list $root $component)) }}{{ end -}}
{{- with $object.spec }}{{ with .policyName }}{{ $_ := set $object.spec "policyName" (include "sheave.name" (list $root .)) }}{{ end }}{{ end -}}
{{- $items = append $items $object -}}
{{- end -}}
{{- end -}}
{{ dict "items" $items | toJson }}
{{- end }}

{{/* Changes the Pods of an object to what a component's values say: (list $ component object). */}}
{{- define "sheave.pods" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $object := index . 2 -}}
{{- $values := index $root.Values $component -}}
{{- $template := $object.spec.template -}}
{{- include "sheave.label" (list $object.metadata ($values.labels | default dict)) -}}
{{- include "sheave.annotate" (list $object.metadata $values.annotations) -}}
{{- include "sheave.label" (list $template.metadata (merge (dict) ($values.podLabels | default dict) $root.Values.commonLabels)) -}}
{{- include "sheave.annotate" (list $template.metadata $values.podAnnotations) -}}
{{- $pod := $template.spec -}}
{{- if $pod.serviceAccountName }}{{ $_ := set $pod "serviceAccountName" (include "sheave.serviceAccountName" (list $root $component)) }}{{ end -}}
{{- range $pod.volumes }}
{{- with .configMap }}{{ $_ := set . "name" (include "sheave.name" (list $root .name)) }}{{ end -}}
{{- if eq .name "metrics" }}{{ $_ := set .secret "secretName" $root.Values.metrics.secretName }}{{ end -}}
{{- end -}}
{{- $secrets := list -}}
{{- range concat $root.Values.global.imagePullSecrets $root.Values.imagePullSecrets }}{{ $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}{{ end -}}
{{- include "sheave.append" (list $pod "imagePullSecrets" (uniq $secrets)) -}}
{{- $container := first $pod.containers -}}
{{- $image := $values.image | default $root.Values.image -}}
{{- $_ := set $container "image" (include "sheave.image" (list $root $image)) -}}
{{- with $image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end -}}
{{- $_ := set $container "resources" $values.resources -}}
{{- include "sheave.append" (list $container "args" $values.extraArgs) -}}
{{- include "sheave.append" (list $container "env" $values.extraEnv) -}}
{{- include "sheave.append" (list $container "volumeMounts" $values.extraVolumeMounts) -}}
{{- include "sheave.append" (list $pod "volumes" $values.extraVolumes) -}}
{{- include "sheave.append" (list $pod "containers" $values.extraContainers) -}}
{{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" }}
{{- with index $values $probe }}{{ include "sheave.replace" (list (index $container $probe) .) }}{{ end -}}
{{- end -}}
{{- if $values.podSecurityContext }}{{ include "sheave.replace" (list $pod.securityContext $values.podSecurityContext) }}{{ end -}}
{{- if $values.securityContext }}{{ include "sheave.replace" (list $container.securityContext $values.securityContext) }}{{ end -}}
{{- end }}

{{/* Changes where the Pods of an object run to what a component's values say: (list $ component object). */}}
{{- define "sheave.scheduling" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
{{- $pod := (index . 2).spec.template.spec -}}
{{- if $values.nodeSelector }}{{ if (index . 2).kind | eq "DaemonSet" }}{{ $_ := unset $pod "affinity" }}{{ end }}{{ end -}}
{{- if $values.affinity }}{{ $_ := set $pod "affinity" ($pod.affinity | default dict) }}{{ include "sheave.replace" (list $pod.affinity (deepCopy $values.affinity)) }}{{ end -}}
{{- include "sheave.replace" (list $pod.nodeSelector $values.nodeSelector) -}}
{{- range $field := list "tolerations" "topologySpreadConstraints" "priorityClassName" "runtimeClassName" }}
{{- $_ := unset $pod $field -}}
{{- with index $values $field }}{{ $_ := set $pod $field . }}{{ end -}}
{{- end -}}
{{- end }}

{{/* Sets a strategy, without `rollingUpdate` where it is another: (list spec field strategy). */}}
{{- define "sheave.strategy" -}}
{{- with index . 2 }}{{ $_ := set (index $ 0) (index $ 1) (eq (.type | default "RollingUpdate") "RollingUpdate" | ternary . (omit . "rollingUpdate")) }}{{ end -}}
{{- end }}

{{/* Mounts a volume in the first container: (list pod volume path). */}}
{{- define "sheave.mount" -}}
{{- $pod := index . 0 -}}
{{- $volume := index . 1 -}}
{{- include "sheave.append" (list $pod "volumes" (list $volume)) -}}
{{- include "sheave.append" (list (first $pod.containers) "volumeMounts" (list (dict "name" $volume.name "mountPath" (index . 2) "readOnly" true))) -}}
{{- end }}

{{/* Mounts the kubeconfig for Karmada: (list $ component pod). */}}
{{- define "sheave.karmada" -}}
{{- $karmada := (index . 0).Values.karmada -}}
{{- if $karmada.enabled -}}
{{- $secret := (index $karmada (index . 1)).secretName -}}
{{- $volume := dict "name" "karmada" "secret" (dict "secretName" $secret) -}}
{{- if $karmada.boundTokens -}}
{{- $token := dict "path" "token" "audience" "karmada" "expirationSeconds" 3600 -}}
{{- $volume = dict "name" "karmada" "projected" (dict "sources" (list (dict "secret" (dict "name" $secret)) (dict "serviceAccountToken" $token))) -}}
{{- end -}}
{{- include "sheave.mount" (list (index . 2) $volume "/etc/sheave-karmada") -}}
{{- end -}}
{{- end }}

{{- define "sheave.capabilities" -}}
{{- $all := .Values.gateway.capabilities -}}
{{- if eq .Values.announce "l2" -}}{{- $all = append $all "NET_RAW" | uniq -}}{{- end -}}
{{ toJson $all }}
{{- end }}

{{/* The configuration of a component: (list $ component own), where `own` is what the chart decides for it alone. */}}
{{- define "sheave.config" -}}
{{- $values := (index . 0).Values -}}
{{- $config := deepCopy (index $values (index . 1)).config -}}
{{- $own := index . 2 -}}
{{- with $values.loadBalancerClass }}{{ $_ := set $own "loadBalancerClass" . }}{{ end -}}
{{- if $values.handleUnclassified }}{{ $_ := set $own "handleUnclassified" true }}{{ end -}}
{{- if and $values.gatewayAPI.enabled (ne $values.gatewayAPI.controllerName "sheave.dev/gateway") -}}
{{- $_ := set $own "gatewayAPI" (dict "controllerName" $values.gatewayAPI.controllerName) -}}
{{- end -}}
{{- if $values.karmada.enabled -}}
{{- $_ := set $own "karmada" (dict "kubeconfig" "/etc/sheave-karmada/kubeconfig") -}}
{{- if and $values.karmada.exportServices (eq (index . 1) "controller") }}{{ $_ := set $own.karmada "exportServices" true }}{{ end -}}
{{- with $values.karmada.cluster }}{{ $_ := set $own "cluster" . }}{{ end -}}
{{- end -}}
{{- if $values.metrics.enabled -}}
{{- $metrics := dict "listen" (printf "%s:%d" (eq (index . 1) "gateway" | ternary "$(NODE_IP)" "0.0.0.0") (int $values.metrics.port)) -}}
{{- $_ := set $metrics "tls" (dict "certificate" "/etc/sheave-metrics/tls.crt" "key" "/etc/sheave-metrics/tls.key") -}}
{{- if not (dig "metrics" "tokenFile" "" $config) }}{{ $_ := set $metrics "authorization" "kubernetes" }}{{ end -}}
{{- include "sheave.replace" (list $metrics ($config.metrics | default dict)) -}}
{{- $_ := set $config "metrics" $metrics -}}
{{- end -}}
{{ toYaml (mergeOverwrite $config $own) }}
{{- end }}

{{/* Probes and volumes rely on what is given here. */}}
{{- define "sheave.gatewayConfig" -}}
{{- $own := dict "admin" (dict "listen" "127.0.0.1:9841") "stateDir" "/var/lib/sheave" -}}
{{- if eq .Values.announce "l2" -}}
{{- $_ := set $own "announce" (dict "mode" "l2" "heartbeat" (dict "keys" "/etc/sheave-heartbeat-keys")) -}}
{{- else if eq .Values.announce "bgp" -}}
{{- $_ := set $own "announce" (dict "mode" "bgp") -}}
{{- end -}}
{{ include "sheave.config" (list . "gateway" $own) }}
{{- end }}

{{- define "sheave.controllerConfig" -}}
{{- $gateways := dict "service" (printf "%s/%s-gateways" (include "sheave.namespace" .) (include "sheave.fullname" .)) "tokenFile" "/var/run/secrets/sheave.dev/gateways/token" -}}
{{- $election := dict "lease" (printf "%s/sheave-controller" (include "sheave.namespace" .)) -}}
{{ include "sheave.config" (list . "controller" (dict "gateways" $gateways "leaderElection" $election)) }}
{{- end }}

{{/* The port of the gateways' reports. */}}
{{- define "sheave.reportPort" -}}
{{ dig "report" "listen" ":9842" .Values.gateway.config | splitList ":" | last }}
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
