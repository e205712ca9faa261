{{/* The names are at most 63 characters long, because labels are. */}}
{{- define "pronghorn.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "pronghorn.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pronghorn.labels" -}}
{{ include "pronghorn.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "pronghorn.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "pronghorn.terminationGracePeriod" -}}
{{- $longest := add .Values.stop.drainDelay .Values.stop.gracePeriod -}}
{{- .Values.stop.terminationGracePeriod | default (add $longest 10) -}}
{{- end -}}

{{/* The schema can't see these mistakes, or its message would not explain them. */}}
{{- define "pronghorn.check" -}}
{{- $v := .Values -}}
{{- if and (eq $v.image.tag "latest") (not $v.image.digest) -}}
{{- fail "image.tag is `latest`, which may be another release after a restart: write a version" -}}
{{- end -}}
{{- $longest := add $v.stop.drainDelay $v.stop.gracePeriod -}}
{{- $period := include "pronghorn.terminationGracePeriod" . | int64 -}}
{{- if le $period $longest -}}
{{- fail (printf (print "stop.terminationGracePeriod is %d, and a stop may take %d s "
  "(drainDelay + gracePeriod): write more, or null") $period $longest) -}}
{{- end -}}
{{- if $v.config -}}
{{- $config := fromYaml $v.config -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "config is not a pronghorn.yaml: %s" $config.Error) -}}
{{- end -}}
{{- end -}}
{{- /* Numbers of a file and of --set have different types. */ -}}
{{- $ports := list (int $v.ports.http) (int $v.ports.status) (int $v.ports.metrics) -}}
{{- if lt (len (uniq $ports)) 3 -}}
{{- fail "ports.http, ports.status and ports.metrics must differ" -}}
{{- end -}}
{{- if $v.autoscaling.enabled -}}
{{- if $v.state.enabled -}}
{{- fail (print "autoscaling.enabled and state.enabled: a pod that autoscaling removes would leave "
  "its jobs on a volume without a server. Use a broker for jobs, or a fixed number of replicas") -}}
{{- end -}}
{{- if gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if not (dig "requests" "cpu" "" $v.resources) -}}
{{- fail "autoscaling needs resources.requests.cpu: the load is a percentage of it" -}}
{{- end -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) -}}
{{- fail "ingress.enabled needs at least one name in ingress.hosts" -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled (not $v.metrics.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.enabled: true" -}}
{{- end -}}
{{- end -}}
