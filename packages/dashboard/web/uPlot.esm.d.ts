/** The library's own file, served as `assets/uPlot.esm.js`. */
import uPlot from 'uplot'

export default uPlot
