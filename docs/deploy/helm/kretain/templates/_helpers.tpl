{{- define "kretain.labels" -}}
app.kubernetes.io/name: kretain
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "kretain.claim" -}}
{{ .Values.state.existingClaim | default (printf "%s-kretain-state" .Release.Name) }}
{{- end }}

{{- /* A pod: call with (dict "root" $ "part" "trim" "command" list "args" list "watch" bool) */ -}}
{{- define "kretain.pod" -}}
{{- $root := .root -}}
terminationGracePeriodSeconds: 90
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
      - --command-config=/etc/kretain/client/client.properties
      - --policy=/etc/kretain/policy/policy.yaml
      - --state-dir=/var/lib/kretain/state
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
      - {name: client, mountPath: /etc/kretain/client, readOnly: true}
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
  - name: client
    secret: {secretName: {{ $root.Values.clientSecret }}}
  - name: state
    persistentVolumeClaim: {claimName: {{ include "kretain.claim" $root }}}
  - name: tmp
    emptyDir: {}
{{- end }}
