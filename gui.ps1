# Installs what is missing and starts the GUI; every flag goes to it: .\gui.ps1 --server_port 7860 --inbrowser
$package = Join-Path $PSScriptRoot 'kohya_gui'
if ($PSVersionTable.PSEdition -eq 'Core' -and -not $IsWindows) {
    & sh (Join-Path $package 'start.sh') gui @args
    exit $LASTEXITCODE
}
# The flags go straight to Python, not through cmd, which would take signs such as & and % in a password for its own.
& (Join-Path $package 'start.bat') setup
if ($LASTEXITCODE -ne 0) { exit $LASTEXITCODE }
$venv = if ($env:KOHYA_VENV) { $env:KOHYA_VENV } else { Join-Path $PSScriptRoot 'venv' }
& (Join-Path $venv 'Scripts\python.exe') -I (Join-Path $package 'install.py') gui @args
exit $LASTEXITCODE
