{{- define "kretain.labels" -}}
app.kubernetes.io/name: kretain
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "kretain.claim" -}}
{{ .Values.state.existingClaim | default (printf "%s-kretain-state" .Release.Name) }}
{{- end }}

{{- define "kretain.serviceAccount" -}}
{{- $default := ternary (printf "%s-kretain" .Release.Name) "default" .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default $default }}
{{- end }}

{{- /* "true" if several pods may write to the claim. */ -}}
{{- define "kretain.shared" -}}
{{- if has "ReadWriteMany" .Values.state.accessModes }}true{{ end }}
{{- end }}

{{- /* "true" if a part of this release trims. */ -}}
{{- define "kretain.trims" -}}
{{- $watch := and .Values.watch.enabled .Values.watch.trim }}
{{- if and .Values.trim.enabled $watch }}
{{- fail "trim.enabled and watch.trim both trim: set one of them to false" }}
{{- end }}
{{- if and $watch (gt (int .Values.watch.replicas) 1) (not (include "kretain.shared" .)) }}
{{- fail "watch.replicas: several that trim share the audit log: set state.accessModes to [ReadWriteMany], or replicas to 1" }}
{{- end }}
{{- if or .Values.trim.enabled $watch }}true{{ end }}
{{- end }}

{{- /* A pod: call with (dict "root" $ "args" list "watch" bool "trims" bool) */ -}}
{{- define "kretain.pod" -}}
{{- $root := .root -}}
terminationGracePeriodSeconds: 90
serviceAccountName: {{ include "kretain.serviceAccount" $root }}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: kretain
    image: "{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args:
      {{- range .args }}
      - {{ . | quote }}
      {{- end }}
      {{- if or $root.Values.bootstrapServers (not $root.Values.clientSecret) }}
      - --bootstrap-server={{ $root.Values.bootstrapServers | default "kafka:9092" }}
      {{- end }}
      {{- if $root.Values.clientSecret }}
      - --command-config=/etc/kretain/client/client.properties
      {{- end }}
      - --policy=/etc/kretain/policy/policy.yaml
      - --state-dir=/var/lib/kretain/state
    {{- with $root.Values.extraEnv }}
    env: {{ toYaml . | nindent 6 }}
    {{- end }}
    {{- if .watch }}
    ports:
      - {name: metrics, containerPort: 9308}
    livenessProbe:
      httpGet: {path: /healthz, port: metrics}
      periodSeconds: 30
      failureThreshold: 4
    readinessProbe:
      httpGet: {path: /readyz, port: metrics}
      periodSeconds: 15
    {{- end }}
    resources: {{ toYaml $root.Values.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      - {name: policy, mountPath: /etc/kretain/policy, readOnly: true}
      {{- if $root.Values.clientSecret }}
      - {name: client, mountPath: /etc/kretain/client, readOnly: true}
      {{- end }}
      - {name: state, mountPath: /var/lib/kretain}
      - {name: tmp, mountPath: /tmp}
{{- with $root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: policy
    configMap: {name: {{ $root.Release.Name }}-kretain-policy}
  {{- if $root.Values.clientSecret }}
  - name: client
    secret: {secretName: {{ $root.Values.clientSecret }}}
  {{- end }}
  - name: state
    {{- if or .trims (and (include "kretain.trims" $root) (include "kretain.shared" $root)) }}
    persistentVolumeClaim: {claimName: {{ include "kretain.claim" $root }}}
    {{- else }}
    emptyDir: {}
    {{- end }}
  - name: tmp
    emptyDir: {}
{{- end }}
