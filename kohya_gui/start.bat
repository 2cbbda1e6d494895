@echo off
rem Finds a fitting Python and gives it kohya_gui\install.py: start.bat TASK [arguments]. gui.bat and test.bat call it.
setlocal disableDelayedExpansion
set "INSTALL=%~dp0install.py"
set "VENV=%KOHYA_VENV%"
if not defined VENV set "VENV=%~dp0..\venv"
set "FITS=import sys, ensurepip, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))"
set "PYTHON="

"%VENV%\Scripts\python.exe" -I -S -c "" >nul 2>nul
if not errorlevel 1 goto inside

if defined KOHYA_PYTHON call :try "%KOHYA_PYTHON%"
call :try py -3.13
call :try py -3.12
call :try py -3.11
call :try py -3.10
call :try python
call :try python3
if defined PYTHON goto outside

where uv >nul 2>nul
if errorlevel 1 goto missing
uv venv --seed --clear --python ">=3.10,<3.14" "%VENV%"
if errorlevel 1 goto done

:inside
"%VENV%\Scripts\python.exe" -I "%INSTALL%" %*
goto done

:outside
%PYTHON% -I "%INSTALL%" %*
goto done

:missing
echo error: no Python 3.10, 3.11, 3.12 or 3.13 was found. Install one from python.org or the Microsoft Store, or install uv, >&2
echo which brings a Python by itself. Then start again. A Python in another place: set KOHYA_PYTHON=C:\path\python.exe >&2
call :fail
goto done

rem After an error, a window that was opened by a double click stays until a key is pressed.
:done
set "CODE=%errorlevel%"
if "%CODE%"=="0" exit /b 0
set "STARTED_AS=%cmdcmdline:"=%"
if not "%STARTED_AS:/c =%"=="%STARTED_AS%" pause
exit /b %CODE%

:fail
exit /b 1

:try
if defined PYTHON exit /b 0
%* -I -c "%FITS%" >nul 2>nul
if not errorlevel 1 set PYTHON=%*
exit /b 0
