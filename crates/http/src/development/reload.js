// Loads this page again when the code behind it has changed. Only development mode sends it.
(() => {
    const mine = document.currentScript.dataset.generation;
    if (window.pronghornReload) {
        return;
    }
    window.pronghornReload = true;
    let source;
    // A hidden page gives its connection back: browsers open only six to a server.
    const listen = () => {
        if (document.hidden) {
            source?.close();
            source = undefined;
        } else if (!source) {
            source = new EventSource('/.pronghorn/reload');
            source.onmessage = ({data}) => {
                if (data !== mine && sessionStorage.getItem('pronghorn') !== data) {
                    // Never twice for one change, whatever a cache answers.
                    sessionStorage.setItem('pronghorn', data);
                    location.reload();
                }
            };
        }
    };
    document.addEventListener('visibilitychange', listen);
    listen();
})();
