{{/* Labels of every object. Call with the root. */}}
{{- define "raddle.labels" -}}
app.kubernetes.io/name: raddle
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels that select a process's pods. Call with (list root component). */}}
{{- define "raddle.selector" -}}
app.kubernetes.io/name: raddle
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Reference of the image of controller, webhook and CLI. Call with the root. */}}
{{- define "raddle.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "raddle.serviceAccount" -}}
system:serviceaccount:{{ (index . 0).Release.Namespace }}:raddle-{{ index . 1 }}
{{- end }}

{{/*
matchExpressions for the namespaces in one state, with injection.default as the state of those without the label.
Call with (list root "enabled" | "labelled" | "optedIn"). The excluded namespaces are in none.
*/}}
{{- define "raddle.namespaces" -}}
{{- $root := index . 0 -}}
{{- $state := index . 1 -}}
{{- $default := $root.Values.injection.default -}}
{{- $others := dict "enabled" (list "disabled" "labelled") "labelled" (list "disabled" "enabled") "optedIn" (list "disabled") -}}
{{- $self := dict "enabled" (list "enabled") "labelled" (list "labelled") "optedIn" (list "enabled" "labelled") -}}
- key: raddle.dev/inject
{{- if or (eq $default $state) (and (eq $state "optedIn") (ne $default "disabled")) }}
  operator: NotIn
  values: {{ get $others $state | toJson }}
{{- else }}
  operator: In
  values: {{ get $self $state | toJson }}
{{- end }}
- key: kubernetes.io/metadata.name
  operator: NotIn
  values: {{ prepend $root.Values.injection.excludedNamespaces $root.Release.Namespace | uniq | toJson }}
{{- end }}

{{/* How the API server reaches the webhook. Call with (list root path). */}}
{{- define "raddle.clientConfig" -}}
{{- $root := index . 0 -}}
{{- $path := index . 1 -}}
{{- if $root.Values.webhook.url -}}
url: {{ trimSuffix "/" $root.Values.webhook.url }}{{ $path }}
{{- else -}}
service:
  namespace: {{ $root.Release.Namespace }}
  name: raddle-webhook
  path: {{ $path }}
  port: 443
{{- end }}
{{- with $root.Values.webhook.caBundle }}
caBundle: {{ . }}
{{- end }}
{{- end }}

{{/* What all pods share with the restricted Pod Security Standard. */}}
{{- define "raddle.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "raddle.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Where the pods run. Call with (list root values component). */}}
{{- define "raddle.scheduling" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- $component := index . 2 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector:
  {{- merge (dict "kubernetes.io/os" "linux") $values.nodeSelector | toYaml | nindent 2 }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.affinity }}
affinity:
  {{- toYaml $values.affinity | nindent 2 }}
{{- else if has $component (list "controller" "webhook") }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "raddle.selector" (list $root $component) | nindent 14 }}
{{- end }}
{{- end }}

{{/*
Spreads replicas over nodes and zones where the cluster allows it; a cluster of one node or zone still runs them all.
Call with (list root component).
*/}}
{{- define "raddle.spread" -}}
topologySpreadConstraints:
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "raddle.selector" $ | nindent 8 }}
{{- end }}
{{- end }}

{{- define "raddle.namespaceEnv" -}}
- name: RADDLE_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}

{{/*
Of several replicas one at a time is evicted. An unready pod may always go: a broken one must not hold a node's drain up.
Call with (list root component).
*/}}
{{- define "raddle.podDisruptionBudget" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- if gt (int (get $root.Values $component).replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: raddle-{{ $component }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "raddle.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "raddle.selector" . | nindent 6 }}
{{- end }}
{{- end }}
