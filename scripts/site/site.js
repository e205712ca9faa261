// A menu of versions, from versions.js beside the directories of the versions. That is a script
// because a page of file:// may not read other files.
'use strict';

(() => {
    // This file is in the top of its version.
    const here = new URL('.', document.currentScript.src);
    const list = document.createElement('script');
    list.src = new URL('../versions.js', here).href;
    list.onload = () => {
        const current = decodeURIComponent(here.pathname.split('/').at(-2));
        const bar = document.querySelector('#mdbook-menu-bar .right-buttons');
        if (!bar || window.pronghornVersions.length < 2) {
            return;
        }
        const menu = document.createElement('select');
        menu.className = 'versions';
        menu.setAttribute('aria-label', 'Version');
        for (const version of window.pronghornVersions) {
            menu.add(new Option(version, version, version === current, version === current));
        }
        menu.onchange = () => {
            location.href = new URL(`../${menu.value}/index.html`, here).href;
        };
        bar.prepend(menu);
    };
    document.head.append(list);
})();
